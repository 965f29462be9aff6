/* The compiled part of starting a span that code of the program runs inside of: Recorder.start in _record/recorder.py. */

#include "hotpath.h"

/* What all recorders need for that. Nothing in it changes. */
typedef struct {
    PyObject_HEAD
    PyObject *span_type;
    PyObject *random; /* returns a number of 64 random bits */
    /* The constant parts of a head, in their order; one of the last two precedes the start tag. */
    PyObject *before_trace_id, *before_span_id, *before_parent_id, *start_tag, *local_parent, *remote_parent;
} Starting;

COLLECTED(starting, Starting, span_type, remote_parent)

/* The parts of a Parent, see _record/span.py. */
enum { PARENT_TRACE_ID, PARENT_SPAN_ID, PARENT_FLAGS, PARENT_TRACE_STATE, PARENT_REMOTE, PARENT_SIZE };

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
    PyObject *body = PyObject_GetAttr(arguments[TEMPLATE], state->names[BODY]);
    if (body == NULL)
        return -1;
    put_bytes(record, body);
    Py_DECREF(body);
    if (count == COUNT)
        put_bytes(record, arguments[FIRST]);
    return !record->is_unfit;
}

/* start(template, trace_id, trace_flags, parent[, first]). NULL without an exception if Python has to do it. */
static PyObject *start(PyObject *self, const State *state, PyObject *const *arguments, Py_ssize_t count)
{
    Recorder *recorder = usable(self, state);
    if (recorder == NULL || (count != FIRST && count != COUNT) || recorder->starting == NULL ||
        Py_TYPE(recorder->starting) != state->starting)
        return NULL;
    Record record;
    uint64_t now = now_ns();
    begin_record(&record, START_RECORD, recorder);
    PyObject *starting = NEW_REFERENCE(recorder->starting); /* the program may set another one meanwhile */
    Span *span = NULL;
    if (is_whole(starting, offsetof(Starting, span_type), offsetof(Starting, remote_parent)) &&
        put_start(&record, (const Starting *)starting, state, arguments, count, now) > 0)
        span = new_span(((const Starting *)starting)->span_type, self, arguments[TEMPLATE], arguments[FLAGS], now,
                        &record);
    Py_DECREF(starting);
    /* The last thing to do: a span whose record is there has started. */
    if (span != NULL && append(self, state, &record, BEGUN) < 0)
        Py_CLEAR(span);
    return (PyObject *)span;
}

/* The method of the recorder that does the same in Python. */
static PyObject *start_in_python(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords);
    PyObject *span = NULL;
    PyObject *python = PyObject_GetAttrString(self, "_start");
    PyObject *given = python == NULL ? NULL : PyTuple_New(count);
    PyObject *options = given == NULL ? NULL : PyDict_New();
    if (options == NULL)
        goto end;
    for (Py_ssize_t index = 0; index < count; index++)
        PyTuple_SetItem(given, index, NEW_REFERENCE(arguments[index]));
    for (Py_ssize_t index = 0; index < named; index++)
        if (PyDict_SetItem(options, PyTuple_GetItem(keywords, index), arguments[count + index]) < 0)
            goto end;
    span = PyObject_Call(python, given, options);
end:
    Py_XDECREF(python);
    Py_XDECREF(given);
    Py_XDECREF(options);
    return span;
}

PyObject *recorder_start(PyObject *self, PyTypeObject *base, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords)
{
    State *state = PyType_GetModuleState(base);
    if (state == NULL)
        return NULL;
    if (keywords == NULL) {
        PyObject *span = start(self, state, arguments, count);
        if (span != NULL || PyErr_Occurred())
            return span;
    }
    return start_in_python(self, arguments, count, keywords);
}

static PyObject *starting_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"span_type", "random", "before_trace_id", "before_span_id", "before_parent_id", "start_tag",
                            "local_parent", "remote_parent", NULL};
    State *state = PyType_GetModuleState(type);
    Starting *made = state == NULL ? NULL : (Starting *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OSSSSSS:Starting", names, &PyType_Type, &made->span_type,
                                    &made->random, &made->before_trace_id, &made->before_span_id,
                                    &made->before_parent_id, &made->start_tag, &made->local_parent,
                                    &made->remote_parent)) {
        if (PyType_IsSubtype((PyTypeObject *)made->span_type, state->span))
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
