/* The compiled part of starting a span that code of the program runs inside of, and of finding its parent: what Recorder in
 * _record/recorder.py has for that, and RecordedSpan.as_parent in _record/span.py. */

#include "hotpath.h"

/* What all recorders need for that. Nothing in it changes. */
typedef struct {
    PyObject_HEAD
    PyObject *span_type, *parent_type;
    PyObject *span_key; /* of the span in a context */
    PyObject *random;   /* returns a number of 64 random bits */
    /* The constant parts of a head, in their order; one of the last two precedes the start tag. */
    PyObject *before_trace_id, *before_span_id, *before_parent_id, *start_tag, *local_parent, *remote_parent;
    PyObject *before_caller, *before_submit_time; /* ... and of what a call has carried */
} Starting;

COLLECTED(starting, Starting, span_type, before_submit_time)

/* What this recorder starts spans with. A new reference; NULL if Python has to do it, or with an exception. */
static Starting *starting_of(const Recorder *recorder, const State *state)
{
    PyObject *found = recorder->starting;
    if (found == NULL || Py_TYPE(found) != state->starting ||
        !is_whole(found, offsetof(Starting, span_type), offsetof(Starting, before_submit_time)))
        return NULL;
    return (Starting *)NEW_REFERENCE(found);
}

/* The method of this name, which does the same in Python. */
static PyObject *in_python(PyObject *self, const char *name, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords)
{
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords);
    PyObject *result = NULL;
    PyObject *python = PyObject_GetAttrString(self, name);
    PyObject *given = python == NULL ? NULL : PyTuple_New(count);
    PyObject *options = given == NULL ? NULL : PyDict_New();
    if (options == NULL)
        goto end;
    for (Py_ssize_t index = 0; index < count; index++)
        PyTuple_SetItem(given, index, NEW_REFERENCE(arguments[index]));
    for (Py_ssize_t index = 0; index < named; index++)
        if (PyDict_SetItem(options, PyTuple_GetItem(keywords, index), arguments[count + index]) < 0)
            goto end;
    result = PyObject_Call(python, given, options);
end:
    Py_XDECREF(python);
    Py_XDECREF(given);
    Py_XDECREF(options);
    return result;
}

/* --- parents ---------------------------------------------------------------------------------------------------- */

/* The parts of a Parent, see _record/span.py. */
enum { PARENT_TRACE_ID, PARENT_SPAN_ID, PARENT_FLAGS, PARENT_TRACE_STATE, PARENT_REMOTE, PARENT_SIZE };

enum { IDS_BYTES = 28, TRACE_ID_AT = 2, SPAN_ID_AT = 20 }; /* IDS, TRACE_ID and SPAN_ID in encoded_span/encode.py */

/* A Parent of these parts. A new reference, or NULL with an exception. */
static PyObject *new_parent(const Starting *starting, const unsigned char *head, PyObject *flags, PyObject *state)
{
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *trace_id = PyBytes_FromStringAndSize((const char *)head + TRACE_ID_AT, 16);
    PyObject *span_id = PyBytes_FromStringAndSize((const char *)head + SPAN_ID_AT, 8);
    PyObject *parts = trace_id == NULL || span_id == NULL
                          ? NULL
                          : PyTuple_Pack(PARENT_SIZE, trace_id, span_id, flags, state, Py_False);
    PyObject *arguments = parts == NULL ? NULL : PyTuple_Pack(1, parts);
    PyObject *parent = arguments == NULL ? NULL : make((PyTypeObject *)starting->parent_type, arguments, NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(parts);
    Py_XDECREF(span_id);
    Py_XDECREF(trace_id);
    return parent;
}

/* The span as a parent. NULL without an exception if Python has to make it. */
static PyObject *as_parent(const Span *span, const State *state)
{
    if (span->recorder == NULL || !PyObject_TypeCheck(span->recorder, state->recorder) || span->head == NULL ||
        !PyBytes_CheckExact(span->head) || PyBytes_Size(span->head) < IDS_BYTES || span->trace_flags == NULL ||
        span->trace_state == NULL)
        return NULL;
    Starting *starting = starting_of((const Recorder *)span->recorder, state);
    if (starting == NULL)
        return NULL;
    PyObject *head = NEW_REFERENCE(span->head), *flags = NEW_REFERENCE(span->trace_flags);
    PyObject *trace_state = NEW_REFERENCE(span->trace_state);
    PyObject *parent = new_parent(starting, (const unsigned char *)PyBytes_AsString(head), flags, trace_state);
    Py_DECREF(head);
    Py_DECREF(flags);
    Py_DECREF(trace_state);
    Py_DECREF((PyObject *)starting);
    return parent;
}

static PyObject *as_parent_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    (void)arguments;
    return count == 0 ? as_parent((const Span *)self, state) : NULL;
}

/* parent(context): its span, if it is one of ours that is open. */
static PyObject *parent_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    Starting *starting =
        count == 1 && PyDict_Check(arguments[0]) ? starting_of((const Recorder *)self, state) : NULL;
    if (starting == NULL)
        return NULL;
    PyObject *parent = NULL, *span = PyDict_GetItemWithError(arguments[0], starting->span_key);
    if (span != NULL && (PyObject *)Py_TYPE(span) == starting->span_type && ((Span *)span)->end_time == Py_None) {
        Py_INCREF(span);
        parent = as_parent((const Span *)span, state);
        Py_DECREF(span);
    }
    Py_DECREF((PyObject *)starting);
    return parent;
}

enum { SAMPLER_ROOT, SAMPLER_CHILD, SAMPLER_IS_CONSTANT, SAMPLER_FOLLOWS_PARENT, SAMPLER_SIZE }; /* _record/sampling.py */
enum { NEW_TRACE = 2 };

/* Whether a span is recorded exactly if its parent is. */
static int follows_parent(const Recorder *recorder)
{
    PyObject *sampler = recorder->sampler;
    return sampler != NULL && PyTuple_Check(sampler) && PyTuple_Size(sampler) == SAMPLER_SIZE &&
           PyTuple_GetItem(sampler, SAMPLER_FOLLOWS_PARENT) == Py_True;
}

/* The id and the flags of a new trace, as a pair. NULL with an exception. */
static PyObject *new_trace(const Starting *starting, PyObject *sampler)
{
    uint64_t id[2]; /* new_trace_id in _record/ids.py */
    if (random_number(starting->random, id) < 0 || random_number(starting->random, id + 1) < 0)
        return NULL;
    id[0] = __builtin_bswap64(id[0]);
    id[1] = __builtin_bswap64(id[0] | id[1] ? id[1] : 1);
    PyObject *sampled = NULL, *flags = NULL, *decided = NULL, *is_new = PyLong_FromLong(NEW_TRACE);
    PyObject *trace_id = PyBytes_FromStringAndSize((const char *)id, sizeof id);
    if (trace_id != NULL && is_new != NULL)
        sampled = PyObject_CallFunctionObjArgs(PyTuple_GetItem(sampler, SAMPLER_ROOT), trace_id, NULL);
    if (sampled != NULL)
        flags = PyNumber_Or(is_new, sampled);
    if (flags != NULL)
        decided = PyTuple_Pack(2, trace_id, flags);
    Py_XDECREF(is_new);
    Py_XDECREF(trace_id);
    Py_XDECREF(sampled);
    Py_XDECREF(flags);
    return decided;
}

/* decide(parent): the trace id and the flags of a new span. */
static PyObject *decide_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 1)
        return NULL;
    const Recorder *recorder = (const Recorder *)self;
    PyObject *parent = arguments[0];
    if (parent != Py_None) {
        if (!follows_parent(recorder) || !PyTuple_Check(parent) || PyTuple_Size(parent) != PARENT_SIZE)
            return NULL;
        return PyTuple_Pack(2, PyTuple_GetItem(parent, PARENT_TRACE_ID), PyTuple_GetItem(parent, PARENT_FLAGS));
    }
    PyObject *sampler = recorder->sampler;
    if (sampler == NULL || !PyTuple_Check(sampler) || PyTuple_Size(sampler) != SAMPLER_SIZE)
        return NULL;
    Starting *starting = starting_of(recorder, state);
    if (starting == NULL)
        return NULL;
    Py_INCREF(sampler); /* the program may set another one meanwhile */
    PyObject *decided = new_trace(starting, sampler);
    Py_DECREF(sampler);
    Py_DECREF((PyObject *)starting);
    return decided;
}

/* --- spans ------------------------------------------------------------------------------------------------------ */

static int put_parent(Record *record, const Starting *starting, PyObject *parent)
{
    PyObject *flags = starting->local_parent;
    if (parent != Py_None) {
        if (!PyTuple_Check(parent) || PyTuple_Size(parent) != PARENT_SIZE ||
            PyTuple_GetItem(parent, PARENT_TRACE_STATE) != Py_None)
            return 0;
        PyObject *remote = PyTuple_GetItem(parent, PARENT_REMOTE);
        if (remote != Py_True && remote != Py_False)
            return 0;
        flags = remote == Py_True ? starting->remote_parent : flags;
        put_bytes(record, starting->before_parent_id);
        put_bytes(record, PyTuple_GetItem(parent, PARENT_SPAN_ID));
    }
    put_bytes(record, flags);
    return 1;
}

static int put_body(Record *record, const State *state, PyObject *template)
{
    PyObject *body = PyObject_GetAttr(template, state->names[BODY]);
    if (body == NULL)
        return -1;
    put_bytes(record, body);
    Py_DECREF(body);
    return 0;
}

enum { TEMPLATE, ITS_TRACE_ID, FLAGS, PARENT, FIRST, COUNT };

/* The start record of a span. 1, or 0 if Python has to make it; -1 with an exception. */
static int put_start(Record *record, const Starting *starting, const State *state, PyObject *const *arguments,
                     Py_ssize_t count, uint64_t now)
{
    put_bytes(record, starting->before_trace_id);
    put_bytes(record, arguments[ITS_TRACE_ID]);
    put_bytes(record, starting->before_span_id);
    if (put_random_id(record, starting->random) < 0)
        return -1;
    if (!put_parent(record, starting, arguments[PARENT]))
        return 0;
    put_bytes(record, starting->start_tag);
    put_u64(record, now);
    if (put_body(record, state, arguments[TEMPLATE]) < 0)
        return -1;
    if (count == COUNT)
        put_bytes(record, arguments[FIRST]);
    return !record->is_unfit;
}

/* start(template, trace_id, trace_flags, parent[, first]). */
static PyObject *start_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    Recorder *recorder = usable(self, state);
    Starting *starting = recorder == NULL || (count != FIRST && count != COUNT) ? NULL : starting_of(recorder, state);
    if (starting == NULL)
        return NULL;
    Record record;
    uint64_t now = now_ns();
    begin_record(&record, START_RECORD, recorder);
    Span *span = NULL;
    if (put_start(&record, starting, state, arguments, count, now) > 0)
        span = new_span(starting->span_type, self, arguments[TEMPLATE], arguments[FLAGS], now, &record);
    Py_DECREF((PyObject *)starting);
    /* The last thing to do: a span whose record is there has started. */
    if (span != NULL && append(self, state, &record, BEGUN) < 0)
        Py_CLEAR(span);
    return (PyObject *)span;
}

/* The start record of a span whose parent has been carried. 1, or 0 if Python has to make it; -1 with an exception. */
static int put_carried(Record *record, const Starting *starting, const State *state, const Origin *origin,
                       PyObject *template, PyObject *last, uint64_t now)
{
    put_bytes(record, starting->before_trace_id);
    put(record, origin->trace_id, 16);
    put_bytes(record, starting->before_span_id);
    if (put_random_id(record, starting->random) < 0)
        return -1;
    put_bytes(record, starting->before_parent_id);
    put(record, origin->parent_id, 8);
    put_bytes(record, starting->remote_parent);
    put_bytes(record, starting->start_tag);
    put_u64(record, now);
    if (put_body(record, state, template) < 0)
        return -1;
    if (origin->caller != NULL) {
        put_bytes(record, starting->before_caller);
        put_hex(record, origin->caller, TASK_ID_BYTES);
    }
    put_bytes(record, starting->before_submit_time);
    put_time_as_varint(record, origin->submitted);
    put_bytes(record, last);
    return !record->is_unfit;
}

/* start_carried(template, carried, last). */
static PyObject *start_carried_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    Recorder *recorder = count == 3 ? usable(self, state) : NULL;
    if (recorder == NULL || !follows_parent(recorder))
        return NULL;
    PyObject *template = arguments[0], *carried = arguments[1], *last = arguments[2], *flags = NULL;
    Origin origin = {0};
    Starting *starting = read_carried(carried, &origin, &flags) <= 0 ? NULL : starting_of(recorder, state);
    Span *span = NULL;
    if (starting != NULL) {
        Record record;
        uint64_t now = now_ns();
        begin_record(&record, START_RECORD, recorder);
        if (put_carried(&record, starting, state, &origin, template, last, now) > 0)
            span = new_span(starting->span_type, self, template, flags, now, &record);
        if (span != NULL && append(self, state, &record, BEGUN) < 0)
            Py_CLEAR(span);
    }
    Py_XDECREF((PyObject *)starting);
    Py_XDECREF(flags);
    return (PyObject *)span;
}

/* Where a call below this span comes from, and its flags. 1, or 0 if Python has to find out. */
static int read_span(const Span *span, PyObject *moment, PyObject *caller, Origin *origin, unsigned char *flags)
{
    if (span->end_time != Py_None || span->trace_state != Py_None || span->head == NULL ||
        !PyBytes_CheckExact(span->head) || PyBytes_Size(span->head) < IDS_BYTES || span->trace_flags == NULL ||
        !PyLong_Check(span->trace_flags) || !PyLong_CheckExact(moment) || !PyBytes_CheckExact(caller))
        return 0;
    long given = PyLong_AsLong(span->trace_flags);
    origin->submitted = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(moment);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    Py_ssize_t size = PyBytes_Size(caller);
    if (given < 0 || given > 255 || !(given & 1) || (size != 0 && size != TASK_ID_BYTES))
        return 0;
    const unsigned char *head = (const unsigned char *)PyBytes_AsString(span->head);
    *flags = (unsigned char)given;
    origin->trace_id = head + TRACE_ID_AT;
    origin->parent_id = head + SPAN_ID_AT;
    origin->caller = size == 0 ? NULL : (const unsigned char *)PyBytes_AsString(caller);
    return 1;
}

/* The beginning of the span of a call, and the context that it carries, as a pair. NULL with an exception. */
static PyObject *new_call(const Starting *starting, const Origin *origin, unsigned char flags)
{
    uint64_t number;
    if (random_number(starting->random, &number) < 0)
        return NULL;
    uint64_t span_id = __builtin_bswap64(number ? number : 1);
    Record record;
    record.size = 0;
    record.is_unfit = 0;
    put_bytes(&record, starting->before_trace_id);
    put(&record, origin->trace_id, 16);
    put_bytes(&record, starting->before_span_id);
    put_u64(&record, span_id);
    put_bytes(&record, starting->before_parent_id);
    put(&record, origin->parent_id, 8);
    put_bytes(&record, starting->local_parent);
    PyObject *identity = PyBytes_FromStringAndSize((const char *)record.bytes, (Py_ssize_t)record.size);
    PyObject *carried = identity == NULL ? NULL : new_carried(origin, span_id, flags);
    PyObject *made = carried == NULL ? NULL : PyTuple_Pack(2, identity, carried);
    Py_XDECREF(identity);
    Py_XDECREF(carried);
    return made;
}

/* call_below(context, start_time, caller). */
static PyObject *call_below_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    const Recorder *recorder = (const Recorder *)self;
    Starting *starting = count == 3 && follows_parent(recorder) && PyDict_Check(arguments[0])
                             ? starting_of(recorder, state)
                             : NULL;
    if (starting == NULL)
        return NULL;
    PyObject *context = arguments[0], *moment = arguments[1], *caller = arguments[2];
    PyObject *made = NULL, *span = PyDict_GetItemWithError(context, starting->span_key);
    if (span != NULL && (PyObject *)Py_TYPE(span) == starting->span_type) {
        Origin origin = {0};
        unsigned char flags;
        Py_INCREF(span);
        PyObject *head = ((Span *)span)->head; /* what it points into: code of the program may run, and add to the span */
        Py_XINCREF(head);
        if (read_span((const Span *)span, moment, caller, &origin, &flags))
            made = new_call(starting, &origin, flags);
        Py_XDECREF(head);
        Py_DECREF(span);
    }
    Py_DECREF((PyObject *)starting);
    return made;
}

/* record(template, identity, start_time, end_time, additions). 1, or 0 if Python has to do it; -1 with an exception. */
static int record_span(PyObject *self, const State *state, PyObject *const *arguments)
{
    enum { ITS_TEMPLATE, IDENTITY, BEGAN_AT, ENDED_AT, ADDITIONS };
    Recorder *recorder = usable(self, state);
    if (recorder == NULL || !PyLong_CheckExact(arguments[BEGAN_AT]) || !PyLong_CheckExact(arguments[ENDED_AT]))
        return 0;
    uint64_t began = PyLong_AsUnsignedLongLong(arguments[BEGAN_AT]);
    uint64_t ended = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(arguments[ENDED_AT]);
    if (PyErr_Occurred()) {
        PyErr_Clear(); /* before 1970: Python raises the same as ever */
        return 0;
    }
    Starting *starting = starting_of(recorder, state);
    if (starting == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Record record;
    begin_record(&record, SPAN_RECORD, recorder);
    put_bytes(&record, arguments[IDENTITY]);
    put_bytes(&record, starting->start_tag);
    put_u64(&record, began);
    put_bytes(&record, recorder->end_tag);
    put_u64(&record, ended);
    int result = put_body(&record, state, arguments[ITS_TEMPLATE]);
    Py_DECREF((PyObject *)starting);
    put_bytes(&record, arguments[ADDITIONS]);
    if (result < 0 || record.is_unfit)
        return result;
    return append(self, state, &record, ENDED) < 0 ? -1 : 1;
}

static PyObject *record_part(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 5 || record_span(self, state, arguments) <= 0)
        return NULL;
    Py_RETURN_NONE;
}

/* --- methods ---------------------------------------------------------------------------------------------------- */

/* A part of such a method here: what it returns. NULL without an exception if Python has to do it. */
typedef PyObject *(*Part)(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count);

/* What the part returns, or the method of this name that does the same in Python. */
static PyObject *part_or_python(Part part, const char *python, PyObject *self, PyTypeObject *base,
                                PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    State *state = PyType_GetModuleState(base);
    if (state == NULL)
        return NULL;
    PyObject *result = keywords == NULL ? part(self, state, arguments, count) : NULL;
    return result != NULL || PyErr_Occurred() ? result : in_python(self, python, arguments, count, keywords);
}

#define METHOD(name, part, python)                                                                                   \
    METHOD_BY_BASE(name)                                                                                             \
    {                                                                                                                \
        return part_or_python(part, python, self, base, arguments, count, keywords);                                 \
    }

METHOD(span_as_parent, as_parent_part, "_as_parent")
METHOD(recorder_parent, parent_part, "_parent")
METHOD(recorder_decide, decide_part, "_decide")
METHOD(recorder_start, start_part, "_start")
METHOD(recorder_start_carried, start_carried_part, "_start_carried")
METHOD(recorder_call_below, call_below_part, "_call_below")
METHOD(recorder_record, record_part, "_record")

/* --- the type --------------------------------------------------------------------------------------------------- */

static PyObject *starting_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"span_type", "parent_type", "span_key", "random", "before_trace_id", "before_span_id",
                            "before_parent_id", "start_tag", "local_parent", "remote_parent", "before_caller",
                            "before_submit_time", NULL};
    State *state = PyType_GetModuleState(type);
    Starting *made = state == NULL ? NULL : (Starting *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!UOSSSSSSSS:Starting", names, &PyType_Type, &made->span_type,
                                    &PyType_Type, &made->parent_type, &made->span_key, &made->random,
                                    &made->before_trace_id, &made->before_span_id, &made->before_parent_id,
                                    &made->start_tag, &made->local_parent, &made->remote_parent, &made->before_caller,
                                    &made->before_submit_time)) {
        if (PyType_IsSubtype((PyTypeObject *)made->span_type, state->span) &&
            PyType_IsSubtype((PyTypeObject *)made->parent_type, &PyTuple_Type))
            return own((PyObject *)made, starting_held);
        PyErr_SetString(PyExc_TypeError, "a Starting is made of other things, see its Python code");
    }
    return disown((PyObject *)made, starting_held);
}

static PyType_Slot starting_slots[] = {
    {Py_tp_doc, "What recorders start spans with."},
    {Py_tp_new, starting_new},
    COLLECTED_SLOTS(starting),
    {0, NULL},
};

static PyType_Spec starting_spec = {MODULE ".Starting", sizeof(Starting), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    starting_slots};

int add_starting(PyObject *module, State *state)
{
    state->starting = add_type(module, &starting_spec);
    return state->starting == NULL ? -1 : 0;
}
