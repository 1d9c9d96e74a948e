/*
 * cuDNN's graph API: descriptors.
 *
 * A descriptor stores its attributes by number, as the bytes that they were set with; most are never interpreted. A few
 * are computed when a descriptor is finalized: the engine configurations that heuristics offer, and a plan's workspace.
 * A descriptor holds references to those that it names, because a program may destroy its own handles early. When a
 * program reads an attribute that is a descriptor, its empty descriptor becomes an alias of the stored one.
 */
#include "cudnn/backend.h"
#include "core/alloc.h"
#include "core/config.h"
#include "op_stream/warn.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { NOTE_TENSOR_CORE = 0 };

typedef struct attribute {
    int name, type;
    int64_t count;
    unsigned char *bytes;
} attribute;

struct backend {
    atomic_int references;
    int kind;
    bool finalized;
    backend *same_as; /* an alias of that descriptor */
    attribute *attributes;
    size_t nattributes;
    graph_work *work; /* if it is a finalized plan */
};

static size_t type_nbytes(int type) {
    switch (type) {
    case TYPE_HANDLE:
    case TYPE_INT64:
    case TYPE_DOUBLE:
    case TYPE_VOID_PTR:
    case TYPE_DESCRIPTOR:
        return 8;
    case TYPE_BOOLEAN:
    case TYPE_CHAR:
        return 1;
    case TYPE_FRACTION:
        return 16;
    default:
        return 4;
    }
}

static const backend *resolve(const backend *it) {
    while (it && it->same_as) it = it->same_as;
    return it;
}

static backend *retain(backend *it) {
    it = (backend *)(uintptr_t)resolve(it);
    if (it) it->references++;
    return it;
}

static void release(backend *it);

static void clear(attribute *a) {
    if (a->type == TYPE_DESCRIPTOR)
        for (int64_t i = 0; i < a->count; i++) release(((backend **)(void *)a->bytes)[i]);
    free(a->bytes);
    a->bytes = NULL;
    a->count = 0;
}

static void release(backend *it) {
    if (!it || --it->references > 0) return;
    for (size_t i = 0; i < it->nattributes; i++) clear(&it->attributes[i]);
    free(it->attributes);
    free(it->work);
    release(it->same_as);
    free(it);
}

static attribute *find(const backend *it, int name) {
    it = resolve(it);
    for (size_t i = 0; it && i < it->nattributes; i++)
        if (it->attributes[i].name == name) return &it->attributes[i];
    return NULL;
}

static void set(backend *it, int name, int type, int64_t count, const void *elements) {
    attribute *a = find(it, name);
    unsigned char *bytes = ph_allocate((size_t)count * type_nbytes(type));
    if (count) memcpy(bytes, elements, (size_t)count * type_nbytes(type));
    if (type == TYPE_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) ((backend **)(void *)bytes)[i] = retain(((backend **)(void *)bytes)[i]);
    if (a) {
        clear(a);
    } else {
        it->attributes = ph_reallocate(it->attributes, (it->nattributes + 1) * sizeof *it->attributes);
        a = &it->attributes[it->nattributes++];
    }
    *a = (attribute){name, type, count, bytes};
}

backend_kind backend_kind_of(const backend *it) { return (backend_kind)resolve(it)->kind; }

const void *backend_get(const backend *it, backend_attribute name, int64_t *count) {
    const attribute *a = find(it, name);
    if (count) *count = a ? a->count : 0;
    return a && a->count ? a->bytes : NULL;
}

const backend *backend_child(const backend *it, backend_attribute name, int64_t index) {
    const attribute *a = find(it, name);
    return a && a->type == TYPE_DESCRIPTOR && index < a->count ? ((backend **)(void *)a->bytes)[index] : NULL;
}

int64_t backend_int(const backend *it, backend_attribute name, int64_t otherwise) {
    const attribute *a = find(it, name);
    int64_t wide = 0;
    int32_t narrow = 0;
    if (!a || !a->count) return otherwise;
    switch (type_nbytes(a->type)) {
    case 8:
        memcpy(&wide, a->bytes, 8);
        return wide;
    case 4:
        memcpy(&narrow, a->bytes, 4);
        return narrow;
    default:
        return a->bytes[0];
    }
}

static backend *make(int kind) {
    backend *it = ph_allocate(sizeof *it);
    it->references = 1;
    it->kind = kind;
    return it;
}

/* ---- what is computed on finalization ---------------------------------------------------------------------------- */
static void finish_engine(backend *engine) {
    int32_t note = NOTE_TENSOR_CORE;
    if (backend_int(engine, ATTR_ENGINE_INDEX, 0) == ENGINE_TENSOR_CORES && ph_cfg.cc_major >= 8)
        set(engine, ATTR_ENGINE_NOTES, TYPE_NUMERICAL_NOTE, 1, &note);
}

static const backend *graph_of_config(const backend *config) {
    return backend_child(backend_child(config, ATTR_CFG_ENGINE, 0), ATTR_ENGINE_GRAPH, 0);
}

static int64_t engines_of(const backend *graph) {
    graph_work work;
    graph_work_of(graph, ENGINE_LARGEST, &work);
    return graph_engines(&work);
}

static void work_of_config(const backend *config, graph_work *work) {
    int64_t index = backend_int(backend_child(config, ATTR_CFG_ENGINE, 0), ATTR_ENGINE_INDEX, 0);
    bool lacks = index == ENGINE_TENSOR_CORES && ph_cfg.cc_major < 8;
    graph_work_of(graph_of_config(config), lacks ? ENGINE_VECTORS : (graph_engine)index, work);
}

static void finish_config(backend *config) {
    graph_work work;
    int32_t shared_nbytes = 0;
    work_of_config(config, &work);
    int64_t workspace = (int64_t)graph_workspace(&work);
    set(config, ATTR_CFG_WORKSPACE, TYPE_INT64, 1, &workspace);
    set(config, ATTR_CFG_SHARED_MEMORY, TYPE_INT32, 1, &shared_nbytes);
}

/* Programs that forbid TF32 choose engines by the note. */
static void finish_heuristics(backend *heuristics) {
    const backend *graph = backend_child(heuristics, ATTR_HEUR_GRAPH, 0);
    backend *configs[ENGINES];
    int64_t engines = engines_of(graph);
    for (int64_t i = 0; i < engines; i++) {
        backend *engine = make(BACKEND_ENGINE);
        set(engine, ATTR_ENGINE_GRAPH, TYPE_DESCRIPTOR, 1, &graph);
        set(engine, ATTR_ENGINE_INDEX, TYPE_INT64, 1, &i);
        finish_engine(engine);
        configs[i] = make(BACKEND_ENGINECFG);
        set(configs[i], ATTR_CFG_ENGINE, TYPE_DESCRIPTOR, 1, &engine);
        finish_config(configs[i]);
        engine->finalized = configs[i]->finalized = true;
        release(engine);
    }
    set(heuristics, ATTR_HEUR_RESULTS, TYPE_DESCRIPTOR, engines, configs);
    for (int64_t i = 0; i < engines; i++) release(configs[i]);
}

/* cuDNN compiles attention's kernels for their sizes, which takes 46.6 ms, and 62.7 ms for the gradients, where the
 * plan of a convolution takes 1.8 ms (laboratory/notes/new-sizes.md). */
static uint64_t plans_worth(const graph_work *work) {
    enum { OF_ATTENTION = 26, OF_GRADIENTS = 35 };
    if (work->kind != WORK_SDPA) return 1;
    return work->sdpa.backward ? OF_GRADIENTS : OF_ATTENTION;
}

static void finish_plan(backend *plan) {
    plan->work = ph_allocate(sizeof *plan->work);
    work_of_config(backend_child(plan, ATTR_PLAN_CONFIG, 0), plan->work);
    int64_t workspace = (int64_t)graph_workspace(plan->work);
    set(plan, ATTR_PLAN_WORKSPACE, TYPE_INT64, 1, &workspace);
    ph_host_work(PH_WORK_PLAN, plans_worth(plan->work));
}

static int finish(backend *it) {
    int64_t engines;
    switch (it->kind) {
    case BACKEND_OPGRAPH:
        engines = engines_of(it);
        set(it, ATTR_GRAPH_ENGINES, TYPE_INT64, 1, &engines);
        return CUDNN_OK;
    case BACKEND_ENGINEHEUR:
        if (!backend_child(it, ATTR_HEUR_GRAPH, 0)) return CUDNN_BAD_PARAM;
        finish_heuristics(it);
        return CUDNN_OK;
    case BACKEND_ENGINE:
        if (!backend_child(it, ATTR_ENGINE_GRAPH, 0) || backend_int(it, ATTR_ENGINE_INDEX, 0) < 0 ||
            backend_int(it, ATTR_ENGINE_INDEX, 0) >= ENGINES)
            return CUDNN_NOT_SUPPORTED;
        finish_engine(it);
        return CUDNN_OK;
    case BACKEND_ENGINECFG:
        if (!graph_of_config(it)) return CUDNN_BAD_PARAM;
        finish_config(it);
        return CUDNN_OK;
    case BACKEND_PLAN:
        if (!graph_of_config(backend_child(it, ATTR_PLAN_CONFIG, 0))) /* restored from JSON, or incomplete */
            return backend_get(it, ATTR_PLAN_JSON, NULL)
                       ? ph_refuse("a cuDNN execution plan restored from JSON", CUDNN_NOT_SUPPORTED)
                       : CUDNN_BAD_PARAM;
        finish_plan(it);
        return CUDNN_OK;
    default:
        return CUDNN_OK;
    }
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */
PH_EXPORT int cudnnBackendCreateDescriptor(int kind, backend **out) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!out) return CUDNN_BAD_POINTER;
    if (kind < 0 || kind >= BACKEND_KINDS) return CUDNN_NOT_SUPPORTED;
    *out = make(kind);
    return CUDNN_OK;
}

PH_EXPORT int cudnnBackendDestroyDescriptor(backend *it) {
    release(it);
    return CUDNN_OK;
}

PH_EXPORT int cudnnBackendSetAttribute(backend *it, int name, int type, int64_t count, const void *elements) {
    if (!it || count < 0 || (count && !elements)) return CUDNN_BAD_POINTER;
    if (it->finalized || it->same_as) return CUDNN_BAD_PARAM;
    set(it, name, type, count, elements);
    return CUDNN_OK;
}

PH_EXPORT int cudnnBackendGetAttribute(backend *it, int name, int type, int64_t requested, int64_t *count,
                                       void *elements) {
    if (!it || requested < 0) return CUDNN_BAD_POINTER;
    const attribute *a = find(it, name);
    int64_t has = a ? a->count : 0;
    if (a && type_nbytes(a->type) != type_nbytes(type)) return CUDNN_BAD_PARAM;
    /* With an array: the number of elements written, to which callers shrink it. */
    int64_t give = elements && has > requested ? requested : has;
    if (count) *count = give;
    if (!elements) return CUDNN_OK;
    if (type != TYPE_DESCRIPTOR) {
        if (give) memcpy(elements, a->bytes, (size_t)give * type_nbytes(type));
        return CUDNN_OK;
    }
    for (int64_t i = 0; i < give; i++) { /* the caller passes empty descriptors */
        backend *into = ((backend **)elements)[i];
        if (!into) return CUDNN_BAD_POINTER;
        backend *from = retain(((backend **)(void *)a->bytes)[i]);
        release(into->same_as);
        into->same_as = from;
    }
    return CUDNN_OK;
}

PH_EXPORT int cudnnBackendFinalize(backend *it) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it) return CUDNN_BAD_POINTER;
    if (it->finalized || it->same_as) return CUDNN_OK;
    int status = finish(it);
    it->finalized = status == CUDNN_OK;
    return status;
}

PH_EXPORT int cudnnBackendExecute(cudnn_handle *handle, backend *plan, backend *variant_pack) {
    if (!handle || !plan || !variant_pack) return CUDNN_BAD_POINTER;
    const backend *it = resolve(plan);
    return it->work ? graph_launch(handle->stream, it->work, variant_pack) : CUDNN_NOT_FINALIZED;
}
