/* The compiled part of the recording: what every call does, in the common case. The Python code beside it does the same
 * and everything else: each function here hands over what is uncommon before it has changed anything. */

#include "hotpath.h"

#include <time.h>
#include <unistd.h>

/* --- records -------------------------------------------------------------------------------------------------- */

static void begin_empty_record(Record *record, unsigned char kind)
{
    record->size = FRAME_BYTES;
    record->is_unfit = 0;
    record->bytes[KIND_AT] = kind;
}

void put(Record *record, const void *data, size_t size)
{
    if (size > MOST_BYTES - record->size) {
        record->is_unfit = 1;
        return;
    }
    memcpy(record->bytes + record->size, data, size);
    record->size += size;
}

void put_bytes(Record *record, PyObject *bytes)
{
    if (bytes == NULL || !PyBytes_CheckExact(bytes))
        record->is_unfit = 1;
    else
        put(record, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
}

void put_u64(Record *record, uint64_t number)
{
    put(record, &number, sizeof number);
}

uint64_t u64_at(const unsigned char *data)
{
    uint64_t number;
    memcpy(&number, data, sizeof number);
    return number;
}

/* The eight digits of four bytes, in the order of memory: all at once, each in a byte of the number. */
static uint64_t hex_of(uint32_t four)
{
    uint64_t digits = four;
    digits = (digits | digits << 16) & 0x0000FFFF0000FFFF;
    digits = (digits | digits << 8) & 0x00FF00FF00FF00FF;
    digits = (digits >> 4 & 0x000F000F000F000F) | (digits & 0x000F000F000F000F) << 8;
    uint64_t is_letter = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
    return digits + 0x3030303030303030 + is_letter * ('a' - '0' - 10);
}

void put_hex(Record *record, const unsigned char *data, size_t size)
{
    if (2 * size > MOST_BYTES - record->size) {
        record->is_unfit = 1;
        return;
    }
    for (size_t index = 0; index < size; index += 4) {
        uint32_t four;
        memcpy(&four, data + index, 4);
        uint64_t digits = hex_of(four);
        memcpy(record->bytes + record->size + 2 * index, &digits, 8);
    }
    record->size += 2 * size;
}

void put_time_as_varint(Record *record, uint64_t moment)
{
    enum { SIZE = 9 };
    unsigned char bytes[SIZE];
    if (moment >> 7 * (SIZE - 1) == 0 || moment >> 7 * SIZE != 0) {
        record->is_unfit = 1;
        return;
    }
    for (int index = 0; index < SIZE; index++, moment >>= 7)
        bytes[index] = (unsigned char)((moment & 127) | (index < SIZE - 1 ? 128 : 0));
    put(record, bytes, sizeof bytes);
}

uint64_t span_id_of_task(const unsigned char *task_id, unsigned long long mask)
{
    uint64_t number = u64_at(task_id) ^ mask;
    return number ? number : 1;
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The layout of a plain carried context, and its form. */
enum { FORM = 0, FLAGS = 1, TRACE_ID = 2, SPAN_ID = 18, SUBMIT_TIME = 26, CALLER = 34, CARRIED_BYTES = 58 };
enum { CALL = 0x40 };

static const unsigned char no_task[TASK_ID_BYTES];

int read_carried(PyObject *carried, Origin *origin, PyObject **flags)
{
    if (!is_bytes_of(carried, CARRIED_BYTES))
        return 0;
    const unsigned char *bytes = (const unsigned char *)PyBytes_AsString(carried);
    if (bytes[FORM] != CALL || !(bytes[FLAGS] & 1)) /* without more, and sampled */
        return 0;
    origin->trace_id = bytes + TRACE_ID;
    origin->parent_id = bytes + SPAN_ID;
    origin->is_carried = 1;
    origin->submitted = u64_at(bytes + SUBMIT_TIME);
    origin->caller = memcmp(bytes + CALLER, no_task, sizeof no_task) ? bytes + CALLER : NULL;
    *flags = PyLong_FromLong(bytes[FLAGS]);
    return *flags == NULL ? -1 : 1;
}

/* --- writing -------------------------------------------------------------------------------------------------- */

/* Append to the current segment with one write(2), as SpoolWriter._append does in the common case. 1 if that was done, 0
 * if nothing was done and Python has to do it, -1 with an exception. */
static int append_to_segment(Writer *writer, Record *record)
{
    if (!writer->is_compiled || writer->is_failing || writer->written > writer->segment_bytes || record->is_unfit)
        return 0;
    uint32_t length = (uint32_t)(record->size - FRAME_BYTES);
    uint32_t checksum = checksum_of(record->bytes + KIND_AT, record->size - KIND_AT);
    memcpy(record->bytes, &length, 4);
    memcpy(record->bytes + 4, &checksum, 4);
    int descriptor = writer->descriptor;
    ssize_t written;
    Py_BEGIN_ALLOW_THREADS
    written = write(descriptor, record->bytes, record->size);
    Py_END_ALLOW_THREADS
    if (written < 0)
        return 0; /* Python gets the same error, and knows what to do about it */
    if ((size_t)written == record->size) {
        writer->written += written;
        return 1;
    }
    /* A part of a record must not be followed by the whole one, but by what is said of dropped ones. */
    PyObject *result = PyObject_CallMethod((PyObject *)writer, "_cut", "y#i", (const char *)record->bytes,
                                           (Py_ssize_t)record->size, record->bytes[KIND_AT] == SPAN_RECORD);
    if (result == NULL)
        return -1;
    Py_DECREF(result);
    return 1;
}

/* What follows on the record of a span: now and then, the writer looks around. 0, or -1 with an exception. */
static int look_around(Writer *writer)
{
    double now = monotonic();
    if (now <= writer->look_at)
        return 0;
    PyObject *result = PyObject_CallMethod((PyObject *)writer, "_look_around", "d", now);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

Recorder *usable(PyObject *object, const State *state)
{
    if (object == NULL || !PyObject_TypeCheck(object, state->recorder))
        return NULL;
    Recorder *recorder = (Recorder *)object;
    if (recorder->observer != Py_None || recorder->writer == NULL ||
        !PyObject_TypeCheck(recorder->writer, state->writer))
        return NULL;
    return ((Writer *)recorder->writer)->is_compiled ? recorder : NULL;
}

void begin_record(Record *record, unsigned char kind, const Recorder *recorder)
{
    begin_empty_record(record, kind);
    put_bytes(record, recorder->prefix);
    record->begin = record->size;
}

/* What an `except` block does for a span that may not have been written before a signal handler of the program raised. */
static void finish(PyObject *object, const char *data, Py_ssize_t size)
{
    PyObject *error = take_exception();
    PyObject *done = PyObject_CallMethod(object, "finish", "y#", data, size);
    Py_XDECREF(done);
    set_again(error);
}

int append(PyObject *object, const State *state, Record *record, const char *method)
{
    return append_to(usable(object, state), object, record, method);
}

int append_to(Recorder *recorder, PyObject *object, Record *record, const char *method)
{
    int result = 0;
    if (recorder != NULL) {
        Writer *writer = (Writer *)NEW_REFERENCE(recorder->writer);
        result = append_to_segment(writer, record);
        if (result > 0)
            result = record->bytes[KIND_AT] == SPAN_RECORD && look_around(writer) < 0 ? -1 : 1;
        Py_DECREF(writer);
    }
    if (result == 0) {
        PyObject *done = PyObject_CallMethod(object, method, "y#", (const char *)record->bytes + record->begin,
                                             (Py_ssize_t)(record->size - record->begin));
        Py_XDECREF(done);
        result = done == NULL ? -1 : 1;
        if (done == NULL && record->bytes[KIND_AT] == SPAN_RECORD)
            finish(object, (const char *)record->bytes + record->begin, (Py_ssize_t)(record->size - record->begin));
    }
    return result < 0 ? -1 : 0;
}

/* span(prefix, span) and start(prefix, span) of SpoolWriter. */
static PyObject *write_payload(PyObject *self, PyObject *const *arguments, Py_ssize_t count, unsigned char kind,
                               const char *python)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "two arguments are expected: the prefix and the encoded span");
        return NULL;
    }
    Record record;
    begin_empty_record(&record, kind);
    put_bytes(&record, arguments[0]);
    put_bytes(&record, arguments[1]);
    int result = append_to_segment((Writer *)self, &record);
    if (result == 0)
        return PyObject_CallMethod(self, python, "OO", arguments[0], arguments[1]);
    if (result < 0 || (kind == SPAN_RECORD && look_around((Writer *)self) < 0))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *writer_span(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return write_payload(self, arguments, count, SPAN_RECORD, "_span");
}

static PyObject *writer_start(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return write_payload(self, arguments, count, START_RECORD, "_start");
}

/* --- spans ---------------------------------------------------------------------------------------------------- */

int put_random_id(Record *record, PyObject *random)
{
    PyObject *drawn = PyObject_CallNoArgs(random);
    if (drawn == NULL)
        return -1;
    uint64_t id = PyLong_AsUnsignedLongLong(drawn);
    Py_DECREF(drawn);
    if (PyErr_Occurred())
        return -1;
    put_u64(record, __builtin_bswap64(id ? id : 1)); /* new_span_id in _record/ids.py */
    return 0;
}

Span *new_span(PyObject *type, PyObject *recorder, PyObject *template, PyObject *flags, uint64_t start,
               const Record *record)
{
    Span *span = (Span *)PyType_GenericAlloc((PyTypeObject *)type, 0);
    if (span == NULL)
        return NULL;
    span->recorder = NEW_REFERENCE(recorder);
    span->template = NEW_REFERENCE(template);
    span->trace_flags = NEW_REFERENCE(flags);
    span->trace_state = NEW_REFERENCE(Py_None);
    span->end_time = NEW_REFERENCE(Py_None);
    span->context = NEW_REFERENCE(Py_None);
    span->added = NEW_REFERENCE(Py_None);
    span->start_time = PyLong_FromUnsignedLongLong(start);
    span->head = PyBytes_FromStringAndSize((const char *)record->bytes + record->begin,
                                           (Py_ssize_t)(record->size - record->begin));
    if (span->start_time == NULL || span->head == NULL)
        Py_CLEAR(span);
    return span;
}

/* end(end_time=None) of RecordedSpan. The common case: nothing was added to the span, and it ends now. */
static PyObject *span_end(PyObject *self, PyTypeObject *base, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *keywords)
{
    Span *span = (Span *)self;
    State *state = PyType_GetModuleState(base);
    if (state == NULL)
        return NULL;
    if (count == 0 && keywords == NULL && span->end_time == Py_None && span->added == Py_None) {
        Recorder *recorder = usable(span->recorder, state);
        if (recorder != NULL) {
            Record record;
            uint64_t now = now_ns();
            begin_record(&record, SPAN_RECORD, recorder);
            put_bytes(&record, span->head);
            put_bytes(&record, recorder->end_tag);
            put_u64(&record, now);
            if (!record.is_unfit) {
                PyObject *end_time = PyLong_FromUnsignedLongLong(now);
                if (end_time == NULL)
                    return NULL;
                span->end_time = end_time; /* in place of None */
                Py_DECREF(Py_None);
                PyObject *held = NEW_REFERENCE(span->recorder);
                int result = append_to(recorder, held, &record, ENDED);
                Py_DECREF(held);
                if (result < 0)
                    return NULL;
                Py_RETURN_NONE;
            }
        }
    }
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords);
    if (count + named > 1 || (named && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(keywords, 0), "end_time"))) {
        PyErr_SetString(PyExc_TypeError, "end() takes at most one argument: end_time");
        return NULL;
    }
    /* In parentheses, since a tuple alone would be taken for the arguments. */
    PyObject *at = count + named ? arguments[0] : Py_None;
    PyObject *done = PyObject_CallMethod(self, "_end", "(O)", at);
    if (done == NULL && span->end_time == Py_None) {
        /* A signal handler of the program raised before anything was done, and nobody ends the span again. */
        PyObject *error = take_exception();
        PyObject *again = PyObject_CallMethod(self, "_end", "(O)", at);
        Py_XDECREF(again);
        set_again(error);
    }
    return done;
}

#define OBJECT(type, name, member) {name, T_OBJECT, offsetof(type, member), 0, NULL}

static PyMemberDef writer_members[] = {
    {"_descriptor", T_INT, offsetof(Writer, descriptor), 0, NULL},
    {"_is_compiled", T_BOOL, offsetof(Writer, is_compiled), 0, NULL},
    {"_failing", T_BOOL, offsetof(Writer, is_failing), 0, NULL},
    {"_written", T_LONGLONG, offsetof(Writer, written), 0, NULL},
    {"_segment_bytes", T_LONGLONG, offsetof(Writer, segment_bytes), 0, NULL},
    {"_look_at", T_DOUBLE, offsetof(Writer, look_at), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef recorder_members[] = {
    OBJECT(Recorder, "sampler", sampler),
    OBJECT(Recorder, "fallback", fallback),
    OBJECT(Recorder, "observer", observer),
    OBJECT(Recorder, "_writer", writer),
    OBJECT(Recorder, "_prefix", prefix),
    OBJECT(Recorder, "_end_tag", end_tag),
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef span_members[] = {
    OBJECT(Span, "_recorder", recorder),
    OBJECT(Span, "template", template),
    OBJECT(Span, "trace_flags", trace_flags),
    OBJECT(Span, "trace_state", trace_state),
    OBJECT(Span, "start_time", start_time),
    OBJECT(Span, "end_time", end_time),
    OBJECT(Span, "_head", head),
    OBJECT(Span, "_context", context),
    OBJECT(Span, "_added", added),
    {NULL, 0, 0, 0, NULL},
};

#define BY_BASE METH_METHOD | METH_FASTCALL | METH_KEYWORDS

static PyMethodDef writer_methods[] = {
    {"span", FUNCTION(writer_span), METH_FASTCALL, "Write a span that has ended."},
    {"start", FUNCTION(writer_start), METH_FASTCALL, "Write a start record."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef span_methods[] = {
    {"end", FUNCTION(span_end), BY_BASE, "End the span, now or at this time."},
    {NULL, NULL, 0, NULL},
};

COLLECTED(recorder, Recorder, sampler, end_tag)
COLLECTED(span, Span, recorder, added)

static PyType_Slot writer_slots[] = {
    {Py_tp_doc, "What SpoolWriter appends with."},
    {Py_tp_members, writer_members},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_doc, "What the compiled part has to know of a Recorder."},
    {Py_tp_members, recorder_members},
    COLLECTED_SLOTS(recorder),
    {0, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_doc, "The members of a RecordedSpan, and its end."},
    {Py_tp_members, span_members},
    {Py_tp_methods, span_methods},
    COLLECTED_SLOTS(span),
    {0, NULL},
};

#define BASE (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE)

static PyType_Spec writer_spec = {MODULE ".WriterBase", sizeof(Writer), 0, BASE, writer_slots};
static PyType_Spec recorder_spec = {MODULE ".RecorderBase", sizeof(Recorder), 0, BASE | Py_TPFLAGS_HAVE_GC,
                                    recorder_slots};
static PyType_Spec span_spec = {MODULE ".SpanBase", sizeof(Span), 0, BASE | Py_TPFLAGS_HAVE_GC, span_slots};

/* --- what types have in common ---------------------------------------------------------------------------------- */

static PyObject **first_of(PyObject *self, Held held)
{
    return (PyObject **)((char *)self + held.first);
}

static PyObject **end_of(PyObject *self, Held held)
{
    return (PyObject **)((char *)self + held.last) + 1;
}

PyObject *own(PyObject *self, Held held)
{
    for (PyObject **each = first_of(self, held); each < end_of(self, held); each++)
        Py_XINCREF(*each);
    PyObject_GC_Track(self);
    return self;
}

PyObject *disown(PyObject *self, Held held)
{
    for (PyObject **each = first_of(self, held); each < end_of(self, held); each++)
        *each = NULL;
    Py_DECREF(self);
    return NULL;
}

int visit_held(PyObject *self, Held held, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (PyObject **each = first_of(self, held); each < end_of(self, held); each++)
        Py_VISIT(*each);
    return 0;
}

int clear_held(PyObject *self, Held held)
{
    for (PyObject **each = first_of(self, held); each < end_of(self, held); each++)
        Py_CLEAR(*each);
    return 0;
}

void deallocate(PyObject *self, Held held)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear_held(self, held);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

int is_bytes_of(PyObject *object, Py_ssize_t size)
{
    return PyBytes_CheckExact(object) && PyBytes_Size(object) == size;
}

PyObject *take_exception(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

void set_again(PyObject *error)
{
    if (PyErr_Occurred())
        Py_DECREF(error);
    else
        PyErr_Restore(NEW_REFERENCE((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
}

int is_whole(PyObject *self, size_t first, size_t last)
{
    Held held = {first, last};
    for (PyObject **each = first_of(self, held); each < end_of(self, held); each++)
        if (*each == NULL) {
            PyErr_SetString(PyExc_RuntimeError, "the garbage collector has cleared this object");
            return 0;
        }
    return 1;
}

/* --- the module ------------------------------------------------------------------------------------------------ */

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static PyObject *read_clock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromUnsignedLongLong(now_ns());
}

static PyMethodDef functions[] = {
    {"now_ns", read_clock, METH_NOARGS, "Nanoseconds since the epoch, by the clock of the system."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    static const char *const names[] = {"active",  "binary",   "calls",    "carried",
                                        "encoded", "end_time", "recorder", "submissions"};
    for (size_t index = 0; index < NAMES; index++)
        if ((state->names[index] = PyUnicode_InternFromString(names[index])) == NULL)
            return -1;
    prepare_checksum();
    return PyModule_AddFunctions(module, functions) < 0 || (state->writer = add_type(module, &writer_spec)) == NULL ||
                   (state->recorder = add_type(module, &recorder_spec)) == NULL ||
                   (state->span = add_type(module, &span_spec)) == NULL || add_executions(module, state) < 0 ||
                   add_submissions(module, state) < 0 || add_delivery(module) < 0
               ? -1
               : 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->writer);
    Py_VISIT(state->recorder);
    Py_VISIT(state->span);
    Py_VISIT(state->execution);
    Py_VISIT(state->submissions);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->writer);
    Py_CLEAR(state->recorder);
    Py_CLEAR(state->span);
    Py_CLEAR(state->execution);
    Py_CLEAR(state->submissions);
    return 0;
}

static void release(void *module)
{
    State *state = PyModule_GetState(module);
    clear(module);
    /* Only now, when no object of its types is left: names are looked up without a check, and are in no cycle. */
    for (size_t index = 0; index < NAMES; index++)
        Py_CLEAR(state->names[index]);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, MODULE, "What every call and its delivery do, in the common case.", sizeof(State), NULL,
    slots, traverse, clear, release,
};

PyMODINIT_FUNC PyInit__hotpath(void)
{
    return PyModuleDef_Init(&definition);
}
