/* The compiled part of the delivery: what the shipper does for every record of a spool. The Python code beside it does
 * the same and everything else: it is asked where a function here returns None. */

#include "hotpath.h"

/* --- reading ---------------------------------------------------------------------------------------------------- */

#define MOST_PAYLOAD (16 * 1024 * 1024 - 1) /* MAX_PAYLOAD in _spool/layout.py */
#define SCOPE_ID_BYTES 2                    /* U16 there */
#define HEAD_BYTES (1 + SCOPE_ID_BYTES)
#define IDS_BYTES 28 /* IDS_SIZE in _spool/reader.py */

/* The ids of a START or SPAN record whose payload has them here. Beyond the end of the data there are zeros. */
static PyObject *ids_at(const unsigned char *data, size_t size, size_t position)
{
    unsigned char padded[IDS_BYTES] = {0};
    if (position + IDS_BYTES <= size)
        return PyBytes_FromStringAndSize((const char *)data + position, IDS_BYTES);
    if (position < size)
        memcpy(padded, data + position, size - position);
    return PyBytes_FromStringAndSize((const char *)padded, IDS_BYTES);
}

/* The Parts of the record that begins at this position and has this length. */
static PyObject *parts_of(const unsigned char *data, size_t size, size_t position, size_t length, PyObject *head,
                          unsigned long long offset)
{
    size_t after_head = length < SCOPE_ID_BYTES ? length : SCOPE_ID_BYTES;
    const unsigned char *payload = data + position + FRAME_BYTES;
    PyObject *parts = PyTuple_New(4);
    PyObject *ids = ids_at(data, size, position + FRAME_BYTES + SCOPE_ID_BYTES);
    PyObject *rest = PyBytes_FromStringAndSize((const char *)payload + after_head, (Py_ssize_t)(length - after_head));
    PyObject *where = PyLong_FromUnsignedLongLong(offset);
    if (parts == NULL || ids == NULL || rest == NULL || where == NULL) {
        Py_XDECREF(parts);
        Py_XDECREF(ids);
        Py_XDECREF(rest);
        Py_XDECREF(where);
        return NULL;
    }
    PyTuple_SetItem(parts, 0, NEW_REFERENCE(head));
    PyTuple_SetItem(parts, 1, ids);
    PyTuple_SetItem(parts, 2, rest);
    PyTuple_SetItem(parts, 3, where);
    return parts;
}

/* Append the valid records from this position on to the list. Returns where they end, or -1 with an exception. */
static Py_ssize_t append_good_records(const unsigned char *data, size_t size, size_t position, unsigned long long base,
                                      PyObject *records)
{
    PyObject *head = NULL; /* of the record before: most records have the same */
    while (position + FRAME_BYTES <= size) {
        uint32_t length, checksum;
        memcpy(&length, data + position, 4);
        memcpy(&checksum, data + position + 4, 4);
        if (length > MOST_PAYLOAD || length > size - position - FRAME_BYTES)
            break;
        const unsigned char *checked = data + position + KIND_AT;
        if (checksum_of(checked, 1 + length) != checksum)
            break;
        size_t head_size = length < SCOPE_ID_BYTES ? 1 + length : HEAD_BYTES;
        if (head == NULL || (size_t)PyBytes_Size(head) != head_size ||
            memcmp(PyBytes_AsString(head), checked, head_size) != 0) {
            Py_XDECREF(head);
            head = PyBytes_FromStringAndSize((const char *)checked, (Py_ssize_t)head_size);
            if (head == NULL)
                return -1;
        }
        PyObject *parts = parts_of(data, size, position, length, head, base + position);
        int failed = parts == NULL || PyList_Append(records, parts) < 0;
        Py_XDECREF(parts);
        if (failed) {
            Py_DECREF(head);
            return -1;
        }
        position += FRAME_BYTES + length;
    }
    Py_XDECREF(head);
    return (Py_ssize_t)position;
}

/* good_records(data, position, base, records), see _good_records in _spool/reader.py. */
static PyObject *good_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *data, *records;
    Py_ssize_t position;
    unsigned long long base;
    if (!PyArg_ParseTuple(arguments, "SnKO!:good_records", &data, &position, &base, &PyList_Type, &records))
        return NULL;
    if (position < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is negative");
        return NULL;
    }
    Py_ssize_t end = append_good_records((const unsigned char *)PyBytes_AsString(data), (size_t)PyBytes_Size(data),
                                         (size_t)position, base, records);
    return end < 0 ? NULL : PyLong_FromSsize_t(end);
}

/* --- OTLP-JSON ---------------------------------------------------------------------------------------------------- */

#define TEMPLATES 8
#define MOST_TEMPLATE 1024 /* _TEMPLATE_BYTES in _formats/otlp_json.py */
#define MOST_IDS 3
#define MOST_PAIRS 4

typedef struct {
    const char *bytes;
    size_t size;
} Piece;

/* Encoded constants, and their JSON. */
typedef struct {
    size_t count;
    struct {
        Piece encoded, text;
    } pair[MOST_PAIRS];
} Pairs;

/* Writes the JSON of calls. */
typedef struct {
    PyObject_HEAD
    PyObject *template; /* returns the JSON of a template, empty if it is none */
    PyObject *held[3];  /* the pieces are parts of these */
    PyObject *templates[TEMPLATES]; /* the last ones, encoded and as JSON */
    PyObject *texts[TEMPLATES];
    size_t next; /* which is replaced next */
    Piece before_trace_id, before_span_id, before_parent_id, start_tag, end_tag, template_tags, before_submit_time,
        submit_time_text;
    Pairs flags, ids;
} CallJson;

/* A part of a span that is being read. */
typedef struct {
    const unsigned char *at, *end;
} Rest;

static int begins_with(Rest rest, Piece piece)
{
    return piece.size <= (size_t)(rest.end - rest.at) && memcmp(rest.at, piece.bytes, piece.size) == 0;
}

/* Whether it begins with this piece, which is then behind it. */
static int skips(Rest *rest, Piece piece)
{
    if (!begins_with(*rest, piece))
        return 0;
    rest->at += piece.size;
    return 1;
}

/* The next bytes, which are then behind it; NULL if there are too few. */
static const unsigned char *take(Rest *rest, size_t size)
{
    const unsigned char *taken = rest->at;
    if ((size_t)(rest->end - taken) < size)
        return NULL;
    rest->at += size;
    return taken;
}

/* Set the time to the one after this tag, if there is one. */
static void take_time(Rest *rest, Piece tag, uint64_t *time)
{
    Rest after = *rest;
    const unsigned char *bytes = skips(&after, tag) ? take(&after, sizeof *time) : NULL;
    if (bytes != NULL) {
        memcpy(time, bytes, sizeof *time);
        *rest = after;
    }
}

/* Skip a field with one of the tags of a template. 0 if it is none. */
static int skip_field(Rest *rest, Piece tags)
{
    const unsigned char *tag = take(rest, 1);
    if (tag == NULL || memchr(tags.bytes, *tag, tags.size) == NULL)
        return 0;
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
        const unsigned char *byte = take(rest, 1);
        if (byte == NULL || shift > 28)
            return 0; /* larger numbers are left to Python */
        number |= (uint64_t)(*byte & 127) << shift;
        if (*byte < 128)
            break;
    }
    return (*tag & 7) == 0 || ((*tag & 7) == 2 && take(rest, (size_t)number) != NULL);
}

/* Which of the pairs begins here; -1 if none does. */
static int which(const Pairs *pairs, Rest rest)
{
    for (size_t index = 0; index < pairs->count; index++)
        if (begins_with(rest, pairs->pair[index].encoded))
            return (int)index;
    return -1;
}

/* The JSON of the template that begins here, which is then behind it. A new reference; NULL if there is none, with or
 * without an exception. It ends where an id begins, and consists of whole fields. */
static PyObject *take_template(CallJson *writer, Rest *rest)
{
    for (size_t index = 0; index < TEMPLATES && writer->templates[index] != NULL; index++) {
        Piece known = {PyBytes_AsString(writer->templates[index]), (size_t)PyBytes_Size(writer->templates[index])};
        Rest after = *rest;
        if (skips(&after, known) && which(&writer->ids, after) >= 0) {
            *rest = after;
            return NEW_REFERENCE(writer->texts[index]);
        }
    }
    Rest after = *rest;
    while (which(&writer->ids, after) < 0)
        if (!skip_field(&after, writer->template_tags) || after.at - rest->at > MOST_TEMPLATE)
            return NULL;
    PyObject *template = PyBytes_FromStringAndSize((const char *)rest->at, after.at - rest->at);
    if (template == NULL)
        return NULL;
    PyObject *text = PyObject_CallFunctionObjArgs(writer->template, template, NULL);
    if (text == NULL || !PyUnicode_Check(text) || PyUnicode_GetLength(text) == 0) {
        Py_DECREF(template);
        Py_XDECREF(text);
        return NULL;
    }
    size_t replaced = writer->next;
    writer->next = (replaced + 1) % TEMPLATES;
    PyObject *before = writer->templates[replaced], *text_before = writer->texts[replaced];
    writer->templates[replaced] = template;
    writer->texts[replaced] = NEW_REFERENCE(text);
    Py_XDECREF(before);
    Py_XDECREF(text_before);
    *rest = after;
    return text;
}

static void put_text(Record *record, const char *text)
{
    put(record, text, strlen(text));
}

static void put_piece(Record *record, Piece piece)
{
    put(record, piece.bytes, piece.size);
}

static void put_decimal(Record *record, uint64_t number)
{
    char digits[20], *first = digits + sizeof digits;
    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    put(record, first, (size_t)(digits + sizeof digits - first));
}

static int is_alphanumeric(const unsigned char *text, size_t size)
{
    for (size_t index = 0; index < size; index++) {
        unsigned char letter = text[index] | 32;
        if (!((text[index] >= '0' && text[index] <= '9') || (letter >= 'a' && letter <= 'z')))
            return 0;
    }
    return size > 0;
}

/* Write the ids that begin here. How many there are, or -1 if one of them is none. The last byte before an id is its
 * size. */
static int put_ids(Record *json, const CallJson *writer, Rest *rest)
{
    int count = 0, index;
    while (count < MOST_IDS && (index = which(&writer->ids, *rest)) >= 0) {
        Piece before = writer->ids.pair[index].encoded;
        rest->at += before.size;
        size_t size = (unsigned char)before.bytes[before.size - 1];
        const unsigned char *id = take(rest, size);
        if (id == NULL || !is_alphanumeric(id, size))
            return -1;
        if (count++ > 0)
            put_text(json, ",");
        put_piece(json, writer->ids.pair[index].text);
        put(json, id, size);
        put_text(json, "\"}}");
    }
    return count;
}

/* Write the submit time, if it comes here: a number of nine bytes, as all are between 1972 and 2262. */
static void put_submit_time(Record *json, const CallJson *writer, Rest *rest)
{
    enum { VARINT_BYTES = 9 };
    Rest after = *rest;
    const unsigned char *bytes;
    if (!skips(&after, writer->before_submit_time) || (bytes = take(&after, VARINT_BYTES)) == NULL)
        return;
    uint64_t time = 0;
    for (int index = 0; index < VARINT_BYTES; index++) {
        if ((bytes[index] >= 128) != (index < VARINT_BYTES - 1))
            return;
        time |= (uint64_t)(bytes[index] & 127) << (7 * index);
    }
    if (bytes[VARINT_BYTES - 1] == 0)
        return;
    put_piece(json, writer->submit_time_text);
    put_decimal(json, time);
    put_text(json, "\"}}");
    *rest = after;
}

/* Write everything up to the start, and set the end if it comes here. 0 if this is no span of the recorder. */
static int put_head(Record *json, const CallJson *writer, Rest *rest, uint64_t *end)
{
    uint64_t start = 0;
    const unsigned char *trace_id = skips(rest, writer->before_trace_id) ? take(rest, 16) : NULL;
    const unsigned char *span_id = trace_id != NULL && skips(rest, writer->before_span_id) ? take(rest, 8) : NULL;
    if (span_id == NULL)
        return 0;
    put_text(json, "{\"traceId\":\"");
    put_hex(json, trace_id, 16);
    put_text(json, "\",\"spanId\":\"");
    put_hex(json, span_id, 8);
    if (skips(rest, writer->before_parent_id)) {
        const unsigned char *parent_id = take(rest, 8);
        if (parent_id == NULL)
            return 0;
        put_text(json, "\",\"parentSpanId\":\"");
        put_hex(json, parent_id, 8);
    }
    int flags = which(&writer->flags, *rest);
    if (flags < 0 || !skips(rest, writer->flags.pair[flags].encoded))
        return 0;
    take_time(rest, writer->start_tag, &start);
    if (start == 0)
        return 0;
    take_time(rest, writer->end_tag, end);
    put_text(json, "\",\"flags\":");
    put_piece(json, writer->flags.pair[flags].text);
    put_text(json, ",\"startTimeUnixNano\":\"");
    put_decimal(json, start);
    return 1;
}

/* write(span): its JSON, as _call in _formats/otlp_json.py writes it; None for a span with another layout, or one to
 * which user code has added something. */
static PyObject *call_json_write(PyObject *self, PyObject *span)
{
    CallJson *writer = (CallJson *)self;
    if (!PyBytes_Check(span)) {
        PyErr_SetString(PyExc_TypeError, "bytes are expected: an encoded span");
        return NULL;
    }
    if (writer->template == NULL)
        Py_RETURN_NONE; /* the garbage collector has cleared it */
    Record json = {.size = 0, .is_unfit = 0}, own = {.size = 0, .is_unfit = 0};
    Rest rest;
    rest.at = (const unsigned char *)PyBytes_AsString(span);
    rest.end = rest.at + PyBytes_Size(span);
    uint64_t end = 0;
    if (!put_head(&json, writer, &rest, &end))
        Py_RETURN_NONE;
    PyObject *template = take_template(writer, &rest);
    if (template == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *result = NULL;
    if (put_ids(&own, writer, &rest) > 0) {
        put_submit_time(&own, writer, &rest);
        take_time(&rest, writer->end_tag, &end);
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(template, &size);
        if (text != NULL && end != 0 && rest.at == rest.end) {
            put_text(&json, "\",\"endTimeUnixNano\":\"");
            put_decimal(&json, end);
            put_text(&json, "\",");
            put(&json, text, (size_t)size);
            put(&json, own.bytes, own.size);
            put_text(&json, "]}");
            if (!json.is_unfit && !own.is_unfit)
                result = PyUnicode_FromStringAndSize((const char *)json.bytes, (Py_ssize_t)json.size);
        }
    }
    Py_DECREF(template);
    if (result == NULL && !PyErr_Occurred())
        result = NEW_REFERENCE(Py_None);
    return result;
}

COLLECTED(call_json, CallJson, template, texts[TEMPLATES - 1])

/* The contents of a bytes object in a tuple. 0 if there is none. */
static int piece_of(PyObject *tuple, Py_ssize_t index, Piece *piece)
{
    PyObject *bytes = index < PyTuple_Size(tuple) ? PyTuple_GetItem(tuple, index) : NULL;
    if (bytes == NULL || !PyBytes_Check(bytes) || PyBytes_Size(bytes) == 0)
        return 0;
    piece->bytes = PyBytes_AsString(bytes);
    piece->size = (size_t)PyBytes_Size(bytes);
    return 1;
}

/* Pairs that come one after the other in a tuple. 0 if these are none. */
static int read_pairs(PyObject *tuple, Pairs *pairs)
{
    for (; (Py_ssize_t)(2 * pairs->count) < PyTuple_Size(tuple); pairs->count++) {
        Py_ssize_t index = (Py_ssize_t)(2 * pairs->count);
        if (pairs->count == MOST_PAIRS || !piece_of(tuple, index, &pairs->pair[pairs->count].encoded) ||
            !piece_of(tuple, index + 1, &pairs->pair[pairs->count].text))
            return 0;
    }
    return 1;
}

static int read_constants(CallJson *made)
{
    Piece *const pieces[] = {&made->before_trace_id, &made->before_span_id, &made->before_parent_id,
                             &made->start_tag, &made->end_tag, &made->template_tags, &made->before_submit_time,
                             &made->submit_time_text};
    for (size_t index = 0; index < sizeof pieces / sizeof *pieces; index++)
        if (!piece_of(made->held[0], (Py_ssize_t)index, pieces[index]))
            return 0;
    return read_pairs(made->held[1], &made->flags) && read_pairs(made->held[2], &made->ids);
}

static PyObject *call_json_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"template", "constants", "flags", "ids", NULL};
    CallJson *made = (CallJson *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO!O!O!:CallJson", names, &made->template, &PyTuple_Type,
                                     &made->held[0], &PyTuple_Type, &made->held[1], &PyTuple_Type, &made->held[2]))
        return disown((PyObject *)made, call_json_held);
    if (!read_constants(made)) {
        PyErr_SetString(PyExc_ValueError, "these are not the constants of a call's span");
        return disown((PyObject *)made, call_json_held);
    }
    return own((PyObject *)made, call_json_held);
}

static PyMethodDef call_json_methods[] = {
    {"write", call_json_write, METH_O, "The JSON of a call's span, or None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot call_json_slots[] = {
    {Py_tp_doc, "Writes the OTLP-JSON of calls."},
    {Py_tp_new, call_json_new},
    {Py_tp_methods, call_json_methods},
    COLLECTED_SLOTS(call_json),
    {0, NULL},
};

static PyType_Spec call_json_spec = {MODULE ".CallJson", sizeof(CallJson), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                     call_json_slots};

/* --- the module --------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"good_records", good_records, METH_VARARGS, "Append the consecutive valid records to a list."},
    {NULL, NULL, 0, NULL},
};

int add_delivery(PyObject *module)
{
    PyTypeObject *call_json = add_type(module, &call_json_spec);
    Py_XDECREF(call_json);
    return call_json == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
