/* What the files of the compiled part share: records of the spool, and the objects that write them.
 *
 * Everything here runs with the GIL held, except for the write itself. No function keeps a borrowed reference across a
 * call into Python. */

#ifndef RAY_TRACING_HOOKS_HOTPATH_H
#define RAY_TRACING_HOOKS_HOTPATH_H

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__linux__) || !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only for Linux on little-endian machines: elsewhere the Python code does everything"
#endif
#ifdef Py_GIL_DISABLED
#error "only for Python with the GIL, which guards all objects here: without it the Python code does everything"
#endif

/* --- records -------------------------------------------------------------------------------------------------- */

#define FRAME_BYTES 9 /* length, checksum and kind: FRAME in _spool/layout.py */
#define KIND_AT 8
#define MOST_BYTES 4096 /* of a record: Python makes larger ones */
#define TASK_ID_BYTES 24
#define OBJECT_ID_BYTES 28 /* of a result, which begin with the id of its task, see ObjectID in Ray's id.h */
#define ACTOR_ID_BEGIN 8   /* a task id contains its actor id, see ActorID in Ray's id.h */

/* A record in the making, see _spool/layout.py. What does not fit, or is no bytes object, makes it unfit: then nothing
 * is written, and Python does it all instead. */
typedef struct {
    size_t size;
    size_t begin; /* of the encoded span, after the prefix */
    int is_unfit;
    unsigned char bytes[MOST_BYTES];
} Record;

enum { START_RECORD = 3, SPAN_RECORD = 4 }; /* START and SPAN in _spool/layout.py */

void put(Record *record, const void *data, size_t size);
void put_bytes(Record *record, PyObject *bytes);
void put_u64(Record *record, uint64_t number);
void put_hex(Record *record, const unsigned char *data, size_t size); /* a multiple of four bytes */
uint64_t u64_at(const unsigned char *data);
uint64_t now_ns(void);

/* As a varint of nine bytes, which is what nanoseconds since the epoch take until the year 2262. */
void put_time_as_varint(Record *record, uint64_t moment);

/* The id of a submission's span: span_id_of_task in _record/ids.py. */
uint64_t span_id_of_task(const unsigned char *task_id, unsigned long long mask);

/* The checksum of zlib.crc32, for which this must have been called once. */
void prepare_checksum(void);
uint32_t checksum_of(const unsigned char *data, size_t size);

/* --- objects -------------------------------------------------------------------------------------------------- */

/* The base of SpoolWriter, with what appending a record needs. */
typedef struct {
    PyObject_HEAD
    int descriptor;
    char is_compiled; /* whether it may be appended to here at all */
    char is_failing;
    long long written;
    long long segment_bytes;
    double look_at;
} Writer;

/* The base of the Python class Recorder. Each member may be any object, or NULL: the program can set them. */
typedef struct {
    PyObject_HEAD
    PyObject *sampler;
    PyObject *fallback;
    PyObject *observer;
    PyObject *writer;   /* None if Python is to do everything */
    PyObject *prefix;
    PyObject *end_tag;  /* precedes the end time of a span */
} Recorder;

/* The base of RecordedSpan; members as above. */
typedef struct {
    PyObject_HEAD
    PyObject *recorder;
    PyObject *template;
    PyObject *trace_flags;
    PyObject *trace_state;
    PyObject *start_time;
    PyObject *end_time;
    PyObject *head;
    PyObject *context;
    PyObject *added;
} Span;

/* Attributes that are looked up. */
enum { ACTIVE, BINARY, CALLS, CARRIED, ENCODED, END_TIME, RECORDER, SUBMISSIONS, NAMES };

typedef struct {
    PyTypeObject *writer;
    PyTypeObject *recorder;
    PyTypeObject *span;
    PyTypeObject *execution;
    PyTypeObject *submissions;
    PyObject *names[NAMES];
} State;

/* The recorder as such, if records may be made for it here now; NULL if Python has to make them. A borrowed reference. */
Recorder *usable(PyObject *recorder, const State *state);

/* Begin the record of a span that this recorder writes. */
void begin_record(Record *record, unsigned char kind, const Recorder *recorder);

/* Append a record, or have the recorder do it with its method of this name. 0, or -1 with an exception. */
#define BEGUN "begun"
#define ENDED "ended"
int append(PyObject *recorder, const State *state, Record *record, const char *method);

/* The same with what `usable` has said of the recorder, if no code in Python has run since. */
int append_to(Recorder *usable, PyObject *recorder, Record *record, const char *method);

/* Put a new span id, from a function that returns 64 random bits. 0, or -1 with an exception. */
int put_random_id(Record *record, PyObject *random);

/* Where a task comes from. */
typedef struct {
    const unsigned char *trace_id, *parent_id, *caller; /* no caller: NULL */
    int is_carried;                                     /* whether the next one is known */
    uint64_t submitted;
} Origin;

/* Read a carried context, if it is a plain one that is sampled, see _record/carrier.py: 1, with pointers into it and a
 * new reference to its flags. 0 if Python has to read it, -1 with an exception. */
int read_carried(PyObject *carried, Origin *origin, PyObject **flags);

/* A span whose head is in its start record. NULL with an exception. */
Span *new_span(PyObject *type, PyObject *recorder, PyObject *template, PyObject *flags, uint64_t start,
               const Record *record);

/* --- types ---------------------------------------------------------------------------------------------------- */

#define MODULE "ray_tracing_hooks._hotpath"

/* Add what these files have to the module. 0, or -1 with an exception. */
int add_executions(PyObject *module, State *state);
int add_submissions(PyObject *module, State *state);
int add_delivery(PyObject *module);

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec);

int is_bytes_of(PyObject *object, Py_ssize_t size);

/* The exception that is set, as an object; it is not set any more. */
PyObject *take_exception(void);

/* Set it again, unless another one is set. Steals the reference. */
void set_again(PyObject *error);

#define NEW_REFERENCE(object) (Py_INCREF(object), (object))

/* The place in an object of the members that are objects, or NULL: one after the other, from `first` to `last`. */
typedef struct {
    size_t first, last;
} Held;

/* Take references to all members, which were borrowed while the object was not tracked by the garbage collector. */
PyObject *own(PyObject *self, Held held);

/* Drop such an object together with what it has borrowed. NULL. */
PyObject *disown(PyObject *self, Held held);

int visit_held(PyObject *self, Held held, visitproc visit, void *arg);
int clear_held(PyObject *self, Held held);
void deallocate(PyObject *self, Held held);

/* Whether the members that are objects are all there, from `first` to `last`: not any more in an object that the garbage
 * collector has cleared, which code of a destructor may still reach. 0 with an exception. */
int is_whole(PyObject *self, size_t first, size_t last);

/* What the garbage collector needs of a type. */
#define COLLECTED(name, type, first, last)                                                                           \
    static const Held name##_held = {offsetof(type, first), offsetof(type, last)};                                   \
    static int name##_traverse(PyObject *self, visitproc visit, void *arg)                                           \
    {                                                                                                                \
        return visit_held(self, name##_held, visit, arg);                                                            \
    }                                                                                                                \
    static int name##_clear(PyObject *self)                                                                          \
    {                                                                                                                \
        return clear_held(self, name##_held);                                                                        \
    }                                                                                                                \
    static void name##_deallocate(PyObject *self)                                                                    \
    {                                                                                                                \
        deallocate(self, name##_held);                                                                               \
    }

#define COLLECTED_SLOTS(name)                                                                                        \
    {Py_tp_traverse, name##_traverse}, {Py_tp_clear, name##_clear}, {Py_tp_dealloc, name##_deallocate}

#define FUNCTION(function) (PyCFunction)(void (*)(void))(function)

#endif
