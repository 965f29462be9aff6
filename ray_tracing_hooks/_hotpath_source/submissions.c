/* The compiled part of submissions: a method of an actor is called. As in recording.c, Python does all that is uncommon. */

#include "hotpath.h"

/* What the calls in one context have in common, if they carry nothing: CallContext in _ray/tracing.py. It never changes. */
typedef struct {
    PyObject_HEAD
    PyObject *made_of;           /* what Python made this of, and needs in order to write a span instead */
    PyObject *context;
    PyObject *span;              /* the one of the context, which must still be open */
    PyObject *connection;        /* the recorder of the connection, whose ... */
    PyObject *sampler, *fallback; /* ... must still be these, which the others were found with */
    PyObject *recorder;          /* the one that records these calls; None if they are not sampled */
    PyObject *object_ref;        /* the type */
    PyObject *bodies;            /* the constant part of each callee's spans, by its key */
    PyObject *before_span_id, *after_span_id, *before_task_id;
    unsigned long long mask;
} Submissions;

COLLECTED(submissions, Submissions, made_of, before_task_id)

static PyObject *submissions_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"made_of", "context", "span", "connection", "sampler", "fallback", "recorder", "object_ref",
                            "bodies", "mask", "before_span_id", "after_span_id", "before_task_id", NULL};
    State *state = PyType_GetModuleState(type);
    Submissions *made = state == NULL ? NULL : (Submissions *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOO!OOOO!O!KSSS:Submissions", names, &made->made_of,
                                    &made->context, &made->span, state->recorder, &made->connection, &made->sampler,
                                    &made->fallback, &made->recorder, &PyType_Type, &made->object_ref, &PyDict_Type,
                                    &made->bodies, &made->mask, &made->before_span_id, &made->after_span_id,
                                    &made->before_task_id))
        return own((PyObject *)made, submissions_held);
    return disown((PyObject *)made, submissions_held);
}

static PyType_Slot submissions_slots[] = {
    {Py_tp_doc, "What the calls in one context have in common."},
    {Py_tp_new, submissions_new},
    COLLECTED_SLOTS(submissions),
    {0, NULL},
};

static PyType_Spec submissions_spec = {MODULE ".Submissions", sizeof(Submissions), 0,
                                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, submissions_slots};

/* A replacement for a method `_remote(self, args, kwargs)` of Ray, which submits a call. */
typedef struct {
    PyObject_HEAD
    PyObject *attributes;  /* its __dict__ */
    PyObject *original;
    PyObject *python;      /* the same replacement in Python, for calls that are uncommon */
    PyObject *accepted;    /* accepted(made_of, start, result, arguments) writes the span of a call in Python */
    PyObject *refused;     /* refused(made_of, start, error, arguments) likewise */
    PyObject *failed;      /* failed(error): an error of this package; raises it if it is one of the program */
    PyObject *tracing;     /* the module */
    PyObject *outgoing;    /* what the call around this one carries, if it is made while that one is submitted */
    PyObject *get_current; /* returns the current context */
    PyObject *key_of;      /* returns the key of a callee */
    PyObject *bind;        /* bind(function, self) makes a bound method */
} Method;

COLLECTED(method, Method, attributes, bind)

/* The attribute of an attribute of an object; a new reference. */
static PyObject *attribute_of(PyObject *object, PyObject *first, PyObject *second)
{
    PyObject *between = PyObject_GetAttr(object, first);
    PyObject *found = between == NULL ? NULL : PyObject_GetAttr(between, second);
    Py_XDECREF(between);
    return found;
}

/* Whether this span is open. -1 with an exception. */
static int is_open(PyObject *span, const State *state)
{
    if (PyObject_TypeCheck(span, state->span))
        return ((Span *)span)->end_time == Py_None;
    PyObject *end_time = PyObject_GetAttr(span, state->names[END_TIME]); /* of a span of the SDK, or a stand-in */
    Py_XDECREF(end_time); /* only its identity matters */
    return end_time == NULL ? -1 : end_time == Py_None;
}

/* Whether `submissions` still hold for a call that is made now. -1 with an exception. */
static int hold(const Submissions *submissions, const Method *method, const State *state)
{
    const Recorder *connection = (const Recorder *)submissions->connection;
    if (connection->sampler != submissions->sampler || connection->fallback != submissions->fallback)
        return 0;
    PyObject *context = PyObject_CallNoArgs(method->get_current);
    if (context == NULL)
        return -1;
    Py_DECREF(context); /* only its identity matters, and `submissions` hold it too if it is the same */
    if (context != submissions->context)
        return 0;
    PyObject *carried = PyObject_GetAttr(method->outgoing, state->names[CARRIED]);
    if (carried == NULL)
        return -1;
    Py_DECREF(carried);
    return carried == Py_None ? is_open(submissions->span, state) : 0;
}

/* What is needed for the call of a method that carries nothing: 1 and new references. 0 if Python has to make the call,
 * -1 with an exception. */
static int look_up(const Method *method, const State *state, PyObject *called, Submissions **submissions,
                   PyObject **body)
{
    PyObject *active = PyObject_GetAttr(method->tracing, state->names[ACTIVE]);
    if (active == NULL)
        return -1;
    PyObject *found =
        active == Py_None ? NEW_REFERENCE(Py_None) : attribute_of(active, state->names[CALLS], state->names[SUBMISSIONS]);
    Py_DECREF(active);
    if (found == NULL)
        return -1;
    if (Py_TYPE(found) != state->submissions) {
        Py_DECREF(found);
        return 0;
    }
    *submissions = (Submissions *)found;
    int result = hold(*submissions, method, state);
    if (result > 0) {
        PyObject *key = PyObject_CallFunctionObjArgs(method->key_of, called, NULL);
        *body = key == NULL ? NULL : PyDict_GetItemWithError((*submissions)->bodies, key);
        Py_XINCREF(*body);
        Py_XDECREF(key);
        if (*body == NULL)
            result = PyErr_Occurred() ? -1 : 0;
    }
    if (result <= 0)
        Py_CLEAR(*submissions);
    return result;
}

/* Whether one of the arguments may be a reference to an object: those are attributes of the span. */
static int may_have_references(PyObject *args, PyObject *kwargs, PyObject *object_ref)
{
    if (args != Py_None) {
        if (!PyTuple_CheckExact(args))
            return 1;
        for (Py_ssize_t index = 0; index < PyTuple_Size(args); index++)
            if ((PyObject *)Py_TYPE(PyTuple_GetItem(args, index)) == object_ref)
                return 1;
    }
    if (kwargs != Py_None) {
        PyObject *key, *value;
        Py_ssize_t position = 0;
        if (!PyDict_CheckExact(kwargs))
            return 1;
        while (PyDict_Next(kwargs, &position, &key, &value))
            if ((PyObject *)Py_TYPE(value) == object_ref)
                return 1;
    }
    return 0;
}

/* Write the span of a call that Ray has accepted. 1 if that was done, 0 if Python has to do it, -1 with an exception.
 * Not inlined: its record would be on the stack while Ray submits the call. */
__attribute__((noinline)) static int write_submission(const Submissions *submissions, const State *state, PyObject *body,
                                                      uint64_t start, PyObject *result, PyObject *args,
                                                      PyObject *kwargs)
{
    if ((PyObject *)Py_TYPE(result) != submissions->object_ref ||
        may_have_references(args, kwargs, submissions->object_ref))
        return 0;
    PyObject *id = PyObject_CallMethodObjArgs(result, state->names[BINARY], NULL);
    if (id == NULL)
        return -1;
    Recorder *recorder = usable(submissions->recorder, state);
    if (recorder == NULL || !is_bytes_of(id, OBJECT_ID_BYTES)) {
        Py_DECREF(id);
        return 0;
    }
    const unsigned char *task_id = (const unsigned char *)PyBytes_AsString(id);
    Record record;
    begin_record(&record, SPAN_RECORD, recorder);
    put_bytes(&record, submissions->before_span_id);
    put_u64(&record, span_id_of_task(task_id, submissions->mask));
    put_bytes(&record, submissions->after_span_id);
    put_u64(&record, start);
    put_bytes(&record, recorder->end_tag);
    put_u64(&record, now_ns());
    put_bytes(&record, body);
    put_bytes(&record, submissions->before_task_id);
    put_hex(&record, task_id, TASK_ID_BYTES);
    Py_DECREF(id);
    if (record.is_unfit)
        return 0;
    return append_to(recorder, submissions->recorder, &record, ENDED) < 0 ? -1 : 1;
}

/* Have Python write the span of a call that Ray has accepted or refused. 0, or -1 with an exception. */
static int write_in_python(PyObject *function, const Submissions *submissions, uint64_t start, PyObject *outcome,
                           PyObject *arguments)
{
    PyObject *done = PyObject_CallFunction(function, "OKOO", submissions->made_of, (unsigned long long)start, outcome,
                                           arguments);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Have Python handle the exception that is set. 0, or -1 with an exception of the program. */
static int handle_fault(const Method *method)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1; /* such as KeyboardInterrupt */
    PyObject *error = take_exception();
    PyObject *handled = PyObject_CallFunctionObjArgs(method->failed, error, NULL);
    Py_XDECREF(error);
    Py_XDECREF(handled);
    return handled == NULL ? -1 : 0;
}

/* What follows on a call that Ray has accepted. 0, or -1 with an exception of the program. */
static int follow_up(const Method *method, const Submissions *submissions, const State *state, PyObject *body,
                     uint64_t start, PyObject *result, PyObject *arguments)
{
    int written = write_submission(submissions, state, body, start, result, PyTuple_GetItem(arguments, 1),
                                   PyTuple_GetItem(arguments, 2));
    if (written == 0)
        written = write_in_python(method->accepted, submissions, start, result, arguments);
    return written < 0 ? handle_fault(method) : 0;
}

/* Have Python write the span of a call that Ray has refused with the exception that is set. It stays set, unless the
 * program interrupts this with another one. */
static void follow_up_refusal(const Method *method, const Submissions *submissions, uint64_t start, PyObject *arguments)
{
    PyObject *error = take_exception();
    if (write_in_python(method->refused, submissions, start, error, arguments) < 0)
        handle_fault(method);
    set_again(error);
}

static PyObject *method_call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    Method *method = (Method *)self;
    State *state = PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL)
        return NULL;
    Submissions *submissions = NULL;
    PyObject *body = NULL;
    int known = 0;
    if (!is_whole(self, offsetof(Method, original), offsetof(Method, bind)))
        return NULL;
    if (PyTuple_Size(arguments) == 3 && (keywords == NULL || PyDict_Size(keywords) == 0))
        known = look_up(method, state, PyTuple_GetItem(arguments, 0), &submissions, &body);
    if (known < 0 && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear(); /* before Ray 2.48, a method has no attribute `_actor` */
    else if (known < 0 && handle_fault(method) < 0)
        return NULL;
    if (known <= 0)
        return PyObject_Call(method->python, arguments, keywords);

    uint64_t start = now_ns();
    PyObject *result = PyObject_Call(method->original, arguments, NULL);
    if (submissions->recorder == Py_None)
        ; /* not sampled */
    else if (result == NULL)
        follow_up_refusal(method, submissions, start, arguments);
    else if (follow_up(method, submissions, state, body, start, result, arguments) < 0)
        Py_CLEAR(result);
    Py_DECREF(submissions);
    Py_DECREF(body);
    return result;
}

static PyObject *method_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"original", "python", "accepted", "refused", "failed", "tracing", "outgoing", "get_current",
                            "key_of", "bind", NULL};
    Method *made = (Method *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOOOOOOO:Method", names, &made->original,
                                    &made->python, &made->accepted, &made->refused, &made->failed, &made->tracing,
                                    &made->outgoing, &made->get_current, &made->key_of, &made->bind))
        return own((PyObject *)made, method_held);
    return disown((PyObject *)made, method_held);
}

/* As an attribute of a class it becomes a method. */
static PyObject *method_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    if (object == NULL || object == Py_None)
        return NEW_REFERENCE(self);
    if (!is_whole(self, offsetof(Method, bind), offsetof(Method, bind)))
        return NULL;
    return PyObject_CallFunctionObjArgs(((Method *)self)->bind, self, object, NULL);
}

static PyGetSetDef method_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef method_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Method, attributes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot method_slots[] = {
    {Py_tp_doc, "Submits calls of methods."},
    {Py_tp_new, method_new},
    {Py_tp_call, method_call},
    {Py_tp_descr_get, method_get},
    {Py_tp_getset, method_attributes},
    {Py_tp_members, method_members},
    COLLECTED_SLOTS(method),
    {0, NULL},
};

static PyType_Spec method_spec = {MODULE ".Method", sizeof(Method), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                  method_slots};

int add_submissions(PyObject *module, State *state)
{
    PyTypeObject *method = add_type(module, &method_spec);
    if (method != NULL)
        state->submissions = add_type(module, &submissions_spec);
    Py_XDECREF(method);
    return state->submissions == NULL ? -1 : 0;
}
