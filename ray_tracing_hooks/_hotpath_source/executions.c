/* The compiled part of executions: a task or a method of an actor begins in a worker. As in recording.c, Python does all
 * that is uncommon. */

#include "hotpath.h"

/* What a call of this callable without arguments returns, as a number. -1 with an exception. */
static long long number_of(PyObject *callable)
{
    PyObject *result = PyObject_CallNoArgs(callable);
    if (result == NULL)
        return -1;
    long long number = PyLong_AsLongLong(result);
    Py_DECREF(result);
    return number;
}

/* Begins the tasks of one function or method: those of one trace that carry nothing, or those that carry their context.
 * Nothing in it changes. */
typedef struct {
    PyObject_HEAD
    PyObject *connection; /* the recorder of the connection */
    PyObject *sampler;    /* the one of its samplers that has decided that these tasks are recorded */
    PyObject *recorder;   /* the one that records these tasks */
    PyObject *template;
    PyObject *span_type, *context_type;
    PyObject *span_key, *task_key;
    PyObject *task_id, *attempt, *depth; /* functions of the core worker */
    PyObject *random;                    /* returns a number of 64 random bits */
    PyObject *held;                      /* has the encoded resources of a task; None for methods */
    PyObject *trace_id, *flags, *driver; /* of the trace, and the task id of its driver; None with carried contexts */
    /* The constant parts of a head, in their order. */
    PyObject *before_trace_id, *before_span_id, *before_parent_id, *after_parent_id, *body, *before_caller;
    PyObject *before_actor_id, *before_submit_time;
    unsigned long long mask; /* of the trace */
} Execution;

COLLECTED(execution, Execution, connection, before_submit_time)

/* The start record of an execution, whose payload is the prefix and the head of its span. */
static int put_head(Record *record, const Execution *execution, const State *state, const Origin *origin,
                    const unsigned char *task_id, uint64_t start)
{
    put_bytes(record, execution->before_trace_id);
    put(record, origin->trace_id, 16);
    put_bytes(record, execution->before_span_id);
    if (put_random_id(record, execution->random) < 0)
        return -1;
    put_bytes(record, execution->before_parent_id);
    put(record, origin->parent_id, 8);
    put_bytes(record, execution->after_parent_id);
    put_u64(record, start);
    put_bytes(record, execution->body);
    put_hex(record, task_id, TASK_ID_BYTES);
    if (origin->caller != NULL) {
        put_bytes(record, execution->before_caller);
        put_hex(record, origin->caller, TASK_ID_BYTES);
    }
    if (execution->held == Py_None) {
        put_bytes(record, execution->before_actor_id);
        put_hex(record, task_id + ACTOR_ID_BEGIN, TASK_ID_BYTES - ACTOR_ID_BEGIN);
    } else {
        PyObject *encoded = PyObject_GetAttr(execution->held, state->names[ENCODED]);
        if (encoded == NULL)
            return -1;
        put_bytes(record, encoded);
        Py_DECREF(encoded);
    }
    if (origin->is_carried) {
        put_bytes(record, execution->before_submit_time);
        put_time_as_varint(record, origin->submitted);
    }
    return 0;
}

/* The context with the span and the id of its task. */
static PyObject *new_context(const Execution *execution, Span *span, PyObject *task_id)
{
    PyObject *context = PyObject_CallNoArgs(execution->context_type);
    if (context != NULL && (PyDict_SetItem(context, execution->span_key, (PyObject *)span) < 0 ||
                            PyDict_SetItem(context, execution->task_key, task_id) < 0))
        Py_CLEAR(context);
    return context;
}

/* begin(recorder, carried, more): the context and the span of the task that is running in this thread or coroutine, as a
 * pair. None if Python has to begin it. */
static PyObject *execution_begin(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Execution *execution = (Execution *)self;
    State *state = PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL)
        return NULL;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "three arguments are expected: recorder, carried, more");
        return NULL;
    }
    PyObject *carried = arguments[1], *more = arguments[2];
    Recorder *connection = usable(arguments[0], state);
    Recorder *recorder = execution->recorder == arguments[0] ? connection : usable(execution->recorder, state);
    if (connection == NULL || arguments[0] != execution->connection || connection->sampler != execution->sampler ||
        recorder == NULL || more != Py_None)
        Py_RETURN_NONE;

    PyObject *id = NULL, *task_id = NULL, *flags = NULL, *context = NULL, *begun = NULL;
    Span *span = NULL;
    Record record;
    Origin origin = {0};
    unsigned char parent_id[8];
    int known = 1;
    if (execution->trace_id == Py_None) {
        known = read_carried(carried, &origin, &flags);
        if (known <= 0)
            goto end;
    } else
        flags = NEW_REFERENCE(execution->flags);

    long long attempt = number_of(execution->attempt);
    if ((attempt == -1 && PyErr_Occurred()) || (id = PyObject_CallNoArgs(execution->task_id)) == NULL ||
        (task_id = PyObject_CallMethodObjArgs(id, state->names[BINARY], NULL)) == NULL)
        goto end;
    if (attempt != 0 || !is_bytes_of(task_id, TASK_ID_BYTES)) {
        known = 0;
        goto end;
    }
    const unsigned char *task_bytes = (const unsigned char *)PyBytes_AsString(task_id);
    if (execution->trace_id != Py_None) {
        uint64_t parent = span_id_of_task(task_bytes, execution->mask);
        memcpy(parent_id, &parent, sizeof parent_id);
        long long depth = number_of(execution->depth);
        if (depth == -1 && PyErr_Occurred())
            goto end;
        origin.trace_id = (const unsigned char *)PyBytes_AsString(execution->trace_id);
        origin.parent_id = parent_id;
        if (depth == 1 && execution->driver != Py_None)
            origin.caller = (const unsigned char *)PyBytes_AsString(execution->driver);
    }
    uint64_t start = now_ns();
    begin_record(&record, START_RECORD, recorder);
    if (put_head(&record, execution, state, &origin, task_bytes, start) < 0)
        goto end;
    if (record.is_unfit) {
        known = 0;
        goto end;
    }
    if ((span = new_span(execution->span_type, execution->recorder, execution->template, flags, start, &record)) ==
            NULL ||
        (context = new_context(execution, span, task_id)) == NULL)
        goto end;
    begun = PyTuple_Pack(2, context, span);
    /* The last thing to do: a span whose record is there has begun. */
    if (begun != NULL && append(execution->recorder, state, &record, BEGUN) < 0)
        Py_CLEAR(begun);
end:
    Py_XDECREF(id);
    Py_XDECREF(task_id);
    Py_XDECREF(flags);
    Py_XDECREF(context);
    Py_XDECREF((PyObject *)span);
    if (known == 0)
        Py_RETURN_NONE;
    return begun;
}

static PyObject *execution_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"connection", "sampler", "recorder", "template", "span_type", "context_type", "span_key",
                            "task_key", "task_id", "attempt", "depth", "random", "held", "trace_id", "flags", "driver",
                            "mask", "before_trace_id", "before_span_id", "before_parent_id", "after_parent_id", "body",
                            "before_caller", "before_actor_id", "before_submit_time", NULL};
    State *state = PyType_GetModuleState(type);
    Execution *made = state == NULL ? NULL : (Execution *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!OO!OO!O!OOOOOOOOOOKSSSSSSSS:Execution", names, state->recorder, &made->connection,
            &made->sampler, state->recorder, &made->recorder, &made->template, &PyType_Type, &made->span_type,
            &PyType_Type, &made->context_type, &made->span_key, &made->task_key, &made->task_id, &made->attempt,
            &made->depth, &made->random, &made->held, &made->trace_id, &made->flags, &made->driver, &made->mask,
            &made->before_trace_id, &made->before_span_id, &made->before_parent_id, &made->after_parent_id, &made->body,
            &made->before_caller, &made->before_actor_id, &made->before_submit_time)) {
        if (PyType_IsSubtype((PyTypeObject *)made->span_type, state->span) &&
            PyType_IsSubtype((PyTypeObject *)made->context_type, &PyDict_Type) &&
            (made->trace_id == Py_None || is_bytes_of(made->trace_id, 16)) &&
            (made->driver == Py_None || is_bytes_of(made->driver, TASK_ID_BYTES)))
            return own((PyObject *)made, execution_held);
        PyErr_SetString(PyExc_TypeError, "an Execution is made of other things, see its Python code");
    }
    return disown((PyObject *)made, execution_held);
}

static PyMethodDef execution_methods[] = {
    {"begin", FUNCTION(execution_begin), METH_FASTCALL, "Begin a task: its context and span, or None for Python."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot execution_slots[] = {
    {Py_tp_doc, "Begins the tasks of one function or method."},
    {Py_tp_new, execution_new},
    {Py_tp_methods, execution_methods},
    COLLECTED_SLOTS(execution),
    {0, NULL},
};

static PyType_Spec execution_spec = {MODULE ".Execution", sizeof(Execution), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, execution_slots};

/* The base of the Python class Beginning, in _ray/execution.py. Each member may be any object, or NULL: the program can
 * set them. */
typedef struct {
    PyObject_HEAD
    PyObject *tracing;    /* the module */
    PyObject *inheriting; /* an Execution for the tasks that carry nothing, or None */
    PyObject *carrying;   /* one for those that carry their context, or None, ... */
    PyObject *active;     /* ... which belongs to this connection */
} Beginning;

COLLECTED(beginning, Beginning, tracing, active)

/* The context and the span of a task, as a pair; None if Python has to begin it; NULL with an exception. */
static PyObject *begin_here(const Beginning *beginning, const State *state, PyObject *active, PyObject *carried,
                            PyObject *more)
{
    PyObject *execution = carried == Py_None              ? beginning->inheriting
                          : active == beginning->active ? beginning->carrying
                                                          : NULL;
    if (execution == NULL || Py_TYPE(execution) != state->execution)
        Py_RETURN_NONE;
    Py_INCREF(execution); /* another thread, or what an attribute runs, may set another one meanwhile */
    PyObject *begun = NULL;
    PyObject *recorder = PyObject_GetAttr(active, state->names[RECORDER]);
    if (recorder != NULL) {
        PyObject *arguments[] = {recorder, carried, more};
        begun = execution_begin(execution, arguments, 3);
        Py_DECREF(recorder);
    }
    Py_DECREF(execution);
    return begun;
}

/* begin(carried, more=None): see there. */
static PyObject *beginning_begin(PyObject *self, PyTypeObject *base, PyObject *const *arguments, Py_ssize_t count,
                                 PyObject *keywords)
{
    const Beginning *beginning = (const Beginning *)self;
    State *state = PyType_GetModuleState(base);
    if (state == NULL)
        return NULL;
    if (count < 1 || count > 2 || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "begin() takes one or two arguments: carried and more");
        return NULL;
    }
    if (!is_whole(self, offsetof(Beginning, tracing), offsetof(Beginning, tracing)))
        return NULL;
    PyObject *more = count > 1 ? arguments[1] : Py_None;
    PyObject *active = PyObject_GetAttr(beginning->tracing, state->names[ACTIVE]);
    if (active == NULL || active == Py_None)
        return active;
    PyObject *begun = begin_here(beginning, state, active, arguments[0], more);
    Py_DECREF(active);
    if (begun == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *error = take_exception();
        begun = PyObject_CallMethod(self, "_fault", "(O)", error);
        Py_DECREF(error);
        return begun;
    }
    if (begun != Py_None)
        return begun;
    Py_DECREF(begun);
    return PyObject_CallMethod(self, "_begin", "(OO)", arguments[0], more);
}

static PyMemberDef beginning_members[] = {
    {"_tracing", T_OBJECT, offsetof(Beginning, tracing), 0, NULL},
    {"_inheriting", T_OBJECT, offsetof(Beginning, inheriting), 0, NULL},
    {"_carrying", T_OBJECT, offsetof(Beginning, carrying), 0, NULL},
    {"_active", T_OBJECT, offsetof(Beginning, active), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef beginning_methods[] = {
    {"begin", FUNCTION(beginning_begin), METH_METHOD | METH_FASTCALL | METH_KEYWORDS, "Begin a task, see Beginning."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot beginning_slots[] = {
    {Py_tp_doc, "Begins the tasks of one function or method, whether they carry a context or not."},
    {Py_tp_members, beginning_members},
    {Py_tp_methods, beginning_methods},
    COLLECTED_SLOTS(beginning),
    {0, NULL},
};

static PyType_Spec beginning_spec = {MODULE ".BeginningBase", sizeof(Beginning), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, beginning_slots};

int add_executions(PyObject *module, State *state)
{
    PyTypeObject *beginning = add_type(module, &beginning_spec);
    if (beginning != NULL)
        state->execution = add_type(module, &execution_spec);
    Py_XDECREF(beginning);
    return state->execution == NULL ? -1 : 0;
}
