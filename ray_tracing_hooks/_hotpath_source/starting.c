/* The compiled part of starting a span that code of the program runs inside of: Recorder.start in _record/recorder.py. */

#include "hotpath.h"

/* Starts the spans of one recorder. */
typedef struct {
    PyObject_HEAD
    PyObject *recorder;
    PyObject *python;    /* the method of the recorder that does the same */
    PyObject *span_type;
    PyObject *random;    /* returns a number of 64 random bits */
    /* The constant parts of a head, in their order; one of the last two precedes the start tag. */
    PyObject *before_trace_id, *before_span_id, *before_parent_id, *start_tag, *local_parent, *remote_parent;
} Starting;

COLLECTED(starting, Starting, recorder, remote_parent)

/* The parts of a Parent, see _record/span.py. */
enum { PARENT_TRACE_ID, PARENT_SPAN_ID, PARENT_FLAGS, PARENT_TRACE_STATE, PARENT_REMOTE, PARENT_SIZE };

static int put_parent(Record *record, const Starting *starting, PyObject *parent)
{
    PyObject *flags = starting->local_parent;
    if (parent != Py_None) {
        PyObject *remote;
        if (!PyTuple_Check(parent) || PyTuple_Size(parent) != PARENT_SIZE ||
            PyTuple_GetItem(parent, PARENT_TRACE_STATE) != Py_None)
            return 0;
        remote = PyTuple_GetItem(parent, PARENT_REMOTE);
        if (remote != Py_True && remote != Py_False)
            return 0;
        flags = remote == Py_True ? starting->remote_parent : flags;
        put_bytes(record, starting->before_parent_id);
        put_bytes(record, PyTuple_GetItem(parent, PARENT_SPAN_ID));
    }
    put_bytes(record, flags);
    return 1;
}

/* A call with (template, trace_id, trace_flags, parent[, first]); all else is for Python. NULL without an exception if
 * Python has to do it. */
static PyObject *start(const Starting *starting, const State *state, PyObject *arguments)
{
    enum { TEMPLATE, ITS_TRACE_ID, FLAGS, PARENT, FIRST, COUNT };
    Py_ssize_t count = PyTuple_Size(arguments);
    Recorder *recorder = usable(starting->recorder, state);
    if (recorder == NULL || (count != FIRST && count != COUNT))
        return NULL;
    PyObject *template = PyTuple_GetItem(arguments, TEMPLATE);
    Record record;
    uint64_t now = now_ns();
    begin_record(&record, START_RECORD, recorder);
    put_bytes(&record, starting->before_trace_id);
    put_bytes(&record, PyTuple_GetItem(arguments, ITS_TRACE_ID));
    put_bytes(&record, starting->before_span_id);
    if (put_random_id(&record, starting->random) < 0 || !put_parent(&record, starting, PyTuple_GetItem(arguments, PARENT)))
        return NULL;
    put_bytes(&record, starting->start_tag);
    put_u64(&record, now);
    PyObject *body = PyObject_GetAttr(template, state->names[BODY]);
    if (body == NULL)
        return NULL;
    put_bytes(&record, body);
    Py_DECREF(body);
    if (count == COUNT)
        put_bytes(&record, PyTuple_GetItem(arguments, FIRST));
    if (record.is_unfit)
        return NULL;
    Span *span = new_span(starting->span_type, starting->recorder, template, PyTuple_GetItem(arguments, FLAGS), now, &record);
    /* The last thing to do: a span whose record is there has started. */
    if (span != NULL && append(starting->recorder, state, &record, BEGUN) < 0)
        Py_CLEAR(span);
    return (PyObject *)span;
}

static PyObject *starting_call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    Starting *starting = (Starting *)self;
    State *state = PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL)
        return NULL;
    if (keywords == NULL || PyDict_Size(keywords) == 0) {
        PyObject *span = start(starting, state, arguments);
        if (span != NULL || PyErr_Occurred())
            return span;
    }
    return PyObject_Call(starting->python, arguments, keywords);
}

static PyObject *starting_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"recorder", "python", "span_type", "random", "before_trace_id", "before_span_id",
                            "before_parent_id", "start_tag", "local_parent", "remote_parent", NULL};
    State *state = PyType_GetModuleState(type);
    Starting *made = state == NULL ? NULL : (Starting *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OO!OSSSSSS:Starting", names, state->recorder,
                                    &made->recorder, &made->python, &PyType_Type, &made->span_type, &made->random,
                                    &made->before_trace_id, &made->before_span_id, &made->before_parent_id,
                                    &made->start_tag, &made->local_parent, &made->remote_parent)) {
        if (PyType_IsSubtype((PyTypeObject *)made->span_type, state->span))
            return own((PyObject *)made, starting_held);
        PyErr_SetString(PyExc_TypeError, "a Starting is made of other things, see its Python code");
    }
    return disown((PyObject *)made, starting_held);
}

static PyType_Slot starting_slots[] = {
    {Py_tp_doc, "Starts the spans of one recorder."},
    {Py_tp_new, starting_new},
    {Py_tp_call, starting_call},
    COLLECTED_SLOTS(starting),
    {0, NULL},
};

static PyType_Spec starting_spec = {MODULE ".Starting", sizeof(Starting), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    starting_slots};

int add_starting(PyObject *module)
{
    PyTypeObject *starting = add_type(module, &starting_spec);
    Py_XDECREF(starting);
    return starting == NULL ? -1 : 0;
}
