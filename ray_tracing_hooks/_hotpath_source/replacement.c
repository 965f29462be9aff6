/* What replacements of functions of Ray have in common, so that they can be in the place of a function in Python. */

#include "hotpath.h"

/* As an attribute of a class it becomes a method. */
PyObject *replacement_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    if (object == NULL || object == Py_None)
        return NEW_REFERENCE(self);
    if (!is_whole(self, offsetof(Replacement, bind), offsetof(Replacement, bind)))
        return NULL;
    return PyObject_CallFunctionObjArgs(((Replacement *)self)->bind, self, object, NULL);
}

/* It is pickled by name, with the same bytes as what it replaces. Patches.wrap gives it that name. */
static PyObject *reduce(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    PyObject *attributes = ((Replacement *)self)->attributes;
    PyObject *name = attributes == NULL ? NULL : PyDict_GetItemString(attributes, "__qualname__");
    if (name == NULL || !PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "cannot pickle a replacement that has no name");
        return NULL;
    }
    return NEW_REFERENCE(name);
}

PyMethodDef replacement_methods[] = {
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyGetSetDef replacement_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyMemberDef replacement_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Replacement, attributes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
