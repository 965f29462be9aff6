/* The compiled part of running a task: _function_executor in _ray/execution.py. */

#include "hotpath.h"

/* What Ray calls to run the tasks of one function or method. Nothing in it changes but its attributes. */
typedef struct {
    PyObject_HEAD
    PyObject *attributes; /* its __dict__ */
    PyObject *function;
    PyObject *begin; /* begin(carried): the context and the span of the task, as a pair, or None */
    PyObject *key;   /* the name of the argument that carries a context */
    PyObject *attach, *reset;
    PyObject *failed; /* failed(span, error) */
    /* generated(result, context, span) is in place of a result that is of one of two types. */
    PyObject *generator_type, *async_generator_type, *generated;
} Executor;

COLLECTED(executor, Executor, attributes, generated)

/* The keywords without the context that they carry, in `carried`; both are new references, or NULL for nothing. -1 with
 * an exception. The caller may go on using its dictionary, so that one is not changed. */
static int take_carried(PyObject *key, PyObject *keywords, PyObject **rest, PyObject **carried)
{
    *rest = NULL;
    *carried = keywords == NULL ? NULL : PyDict_GetItemWithError(keywords, key);
    if (*carried == NULL) {
        Py_XINCREF(keywords);
        *rest = keywords;
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_INCREF(*carried);
    *rest = PyDict_Copy(keywords);
    return *rest == NULL || PyDict_DelItem(*rest, key) < 0 ? -1 : 0;
}

/* Record the exception that is set in the span. */
static void record_failure(const Executor *executor, PyObject *span)
{
    Handled handled;
    begin_handling(&handled);
    Py_XDECREF(PyObject_CallFunctionObjArgs(executor->failed, span, handled.error, NULL));
    end_handling(&handled);
}

/* Attach what was attached before the task, which has failed if an exception is set. 0, or -1 with an exception. */
static int detach(const Executor *executor, PyObject *token)
{
    Handled handled;
    int has_failed = PyErr_Occurred() != NULL;
    if (has_failed)
        begin_handling(&handled);
    Py_XDECREF(PyObject_CallFunctionObjArgs(executor->reset, token, NULL));
    if (has_failed)
        end_handling(&handled);
    return PyErr_Occurred() ? -1 : 0;
}

/* Run the function in this context, and end the span with its method `end`. */
static PyObject *run(const Executor *executor, PyObject *arguments, PyObject *keywords, PyObject *context, PyObject *span,
                     PyObject *end)
{
    PyObject *token = PyObject_CallFunctionObjArgs(executor->attach, context, NULL);
    if (token == NULL)
        return NULL;
    PyObject *result = PyObject_Call(executor->function, arguments, keywords);
    if (result == NULL && span != Py_None)
        record_failure(executor, span);
    if (detach(executor, token) < 0)
        Py_CLEAR(result);
    Py_DECREF(token);
    if (result == NULL)
        return NULL;
    PyObject *type = (PyObject *)Py_TYPE(result), *done = NULL;
    if (type == executor->generator_type || type == executor->async_generator_type) {
        /* Its body runs while Ray iterates it: its span stays open until then. */
        done = PyObject_CallFunctionObjArgs(executor->generated, result, context, span, NULL);
        Py_DECREF(result);
        return done;
    }
    if (span != Py_None && (done = PyObject_CallMethodObjArgs(span, end, NULL)) == NULL)
        Py_CLEAR(result);
    Py_XDECREF(done);
    return result;
}

static PyObject *executor_call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    const Executor *executor = (const Executor *)self;
    const State *state = PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL)
        return NULL;
    if (!is_whole(self, offsetof(Executor, function), offsetof(Executor, generated)))
        return NULL;
    PyObject *rest, *carried, *result = NULL, *begun = NULL;
    if (take_carried(executor->key, keywords, &rest, &carried) < 0)
        goto end;
    begun = PyObject_CallFunctionObjArgs(executor->begin, carried == NULL ? Py_None : carried, NULL);
    if (begun == NULL)
        goto end;
    if (PyTuple_Check(begun) && PyTuple_Size(begun) == 2)
        result = run(executor, arguments, rest, PyTuple_GetItem(begun, 0), PyTuple_GetItem(begun, 1), state->names[END]);
    else
        result = PyObject_Call(executor->function, arguments, rest);
end:
    Py_XDECREF(rest);
    Py_XDECREF(carried);
    Py_XDECREF(begun);
    return result;
}

static PyObject *executor_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"function", "begin", "key", "attach", "reset", "failed", "generator_type",
                            "async_generator_type", "generated", NULL};
    Executor *made = (Executor *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "OOUOOOOOO:Executor", names, &made->function, &made->begin,
                                    &made->key, &made->attach, &made->reset, &made->failed, &made->generator_type,
                                    &made->async_generator_type, &made->generated))
        return own((PyObject *)made, executor_held);
    return disown((PyObject *)made, executor_held);
}

static PyGetSetDef executor_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef executor_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Executor, attributes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot executor_slots[] = {
    {Py_tp_doc, "Runs the tasks of one function or method."},
    {Py_tp_new, executor_new},
    {Py_tp_call, executor_call},
    {Py_tp_getset, executor_attributes},
    {Py_tp_members, executor_members},
    COLLECTED_SLOTS(executor),
    {0, NULL},
};

static PyType_Spec executor_spec = {MODULE ".Executor", sizeof(Executor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    executor_slots};

int add_running(PyObject *module)
{
    PyTypeObject *executor = add_type(module, &executor_spec);
    Py_XDECREF(executor);
    return executor == NULL ? -1 : 0;
}
