/* The compiled part of context propagation: what Ray does with the arguments of each call, few of which carry a context.
 * Python does the rest, see _ray/arguments.py. */

#include "hotpath.h"

/* A replacement for a function or method of Ray, which calls the original at once where no context is carried. */
typedef struct {
    Replacement base; /* whose function in Python is for calls that carry a context */
    PyObject *known;  /* what the function below compares with */
    int (*carries)(PyObject *known, PyObject *arguments); /* whether Python has to do it; -1 with an exception */
} Passing;

COLLECTED(passing, Passing, base.attributes, known)

/* serialize(self, value): is it this object that stands for a context? */
static int is_known(PyObject *known, PyObject *arguments)
{
    return PyTuple_Size(arguments) != 2 || PyTuple_GetItem(arguments, 1) == known;
}

/* flatten_args(...): is a call with a context being submitted? */
static int is_outgoing(PyObject *known, PyObject *arguments)
{
    (void)arguments;
    PyObject *carried = PyObject_GetAttrString(known, "carried");
    if (carried == NULL)
        return -1;
    Py_DECREF(carried);
    return carried != Py_None;
}

/* deserialize_objects(self, serialized, ...): does the metadata of the first element begin with the label? */
static int has_label(PyObject *known, PyObject *arguments)
{
    PyObject *serialized = PyTuple_Size(arguments) > 1 ? PyTuple_GetItem(arguments, 1) : NULL;
    if (serialized == NULL || !PyList_CheckExact(serialized))
        return 1;
    if (PyList_Size(serialized) == 0)
        return 0;
    PyObject *first = PyList_GetItem(serialized, 0);
    if (!PyTuple_Check(first) || PyTuple_Size(first) < 2)
        return 1;
    PyObject *metadata = PyTuple_GetItem(first, 1);
    if (metadata == Py_None)
        return 0;
    if (!PyBytes_CheckExact(metadata))
        return 1;
    Py_ssize_t size = PyBytes_Size(known);
    return PyBytes_Size(metadata) > size &&
           memcmp(PyBytes_AsString(metadata), PyBytes_AsString(known), (size_t)size) == 0;
}

static PyObject *passing_call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    Passing *passing = (Passing *)self;
    if (!is_whole(self, offsetof(Passing, base.original), offsetof(Passing, known)))
        return NULL;
    int carries = keywords != NULL && PyDict_Size(keywords) > 0 ? 1 : passing->carries(passing->known, arguments);
    return carries < 0 ? NULL : PyObject_Call(carries ? passing->base.python : passing->base.original, arguments, keywords);
}

static PyObject *passing_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"original", "python", "carries", "known", "bind", NULL};
    static const struct {
        const char *name;
        int (*carries)(PyObject *known, PyObject *arguments);
    } ways[] = {{"is_known", is_known}, {"is_outgoing", is_outgoing}, {"has_label", has_label}};
    const char *name = NULL;
    Passing *made = (Passing *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "OOsOO:Passing", names, &made->base.original, &made->base.python,
                                    &name, &made->known, &made->base.bind)) {
        for (size_t index = 0; index < sizeof ways / sizeof *ways; index++)
            if (strcmp(ways[index].name, name) == 0)
                made->carries = ways[index].carries;
        if (made->carries != NULL && (made->carries != has_label || PyBytes_CheckExact(made->known)))
            return own((PyObject *)made, passing_held);
        PyErr_SetString(PyExc_TypeError, "a Passing is made of other things, see its Python code");
    }
    return disown((PyObject *)made, passing_held);
}

static PyType_Slot passing_slots[] = {
    {Py_tp_doc, "Passes arguments that carry no context."},
    {Py_tp_new, passing_new},
    {Py_tp_call, passing_call},
    REPLACEMENT_SLOTS,
    COLLECTED_SLOTS(passing),
    {0, NULL},
};

static PyType_Spec passing_spec = {MODULE ".Passing", sizeof(Passing), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                   passing_slots};

int add_arguments(PyObject *module)
{
    PyTypeObject *passing = add_type(module, &passing_spec);
    Py_XDECREF(passing);
    return passing == NULL ? -1 : 0;
}
