/*
 * The device file: what this run's GPUs and hosts are. `key=value` lines, `#` comments, written by the coordinator
 * from the profiles and read once, in the forker.
 *
 *   device_name device_count memory_nbytes reserved_nbytes context_nbytes sm_count cc_major cc_minor  launch_gap_ns
 * graph_gap_ns power_window_ns power_idle       see power.c data_limit_nbytes float_limit_count
 *   host_mode=none|modelled|measured  host_scale  host_function_ns  queue_depth
 *   hot_within_functions warm_within_functions cold_after_functions kept_table_nbytes
 *   memory_threads tensor_cache_nbytes
 *                                    by which host work is counted (profiles/host.py)
 *   host_ns.<kind>                   what one takes of the host; the kinds are those of host_kinds.def
 *   server_cores server_ranks        of the server: its cores, and the ranks that share them and its memory
 *   driver_version                   as CUDA numbers it: 13000
 *   runtime_version                  likewise; without it, the version of the libraries that are loaded (versions.h)
 *   nvml_driver                      the driver's name, 580.95.05
 *   power_limit_w                    the board's default power limit; without it NVML does not know one
 *   multicast                        1: the switches of a server write to several GPUs at once
 *   nvlink_count                     links of a GPU to the switches of its server
 *   trace_ranks=A-B                  ranks that the run's trace shows; may be repeated
 *   trace_first_step trace_last_step steps of theirs that it shows
 *   segment_contents                 1: the run wants to know what segments consist of
 *   history                          1: the run is recorded, see op_stream/history.h
 *   attr.<cudaDeviceAttr>            a device attribute, by its number
 *
 * Unknown keys are errors: a misspelt one would silently describe another machine.
 */
#include "core/config.h"
#include "core/alloc.h"
#include "cuda/attributes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ph_config ph_cfg = {
    .device_name = "phantora",
    .device_count = 1,
    .memory_nbytes = 80ull << 30,
    .reserved_nbytes = 1ull << 30,
    .sm_count = 132,
    .cc_major = 9,
    .data_limit_nbytes = 1 << 20,
    .float_limit_count = 4096,
    .host_mode = PH_HOST_MODELLED,
    .host_scale = 1.0,
    .hot_within_functions = 256,
    .warm_within_functions = 4096,
    .cold_after_functions = 1024,
    .kept_table_nbytes = 2 << 20,
    .memory_threads = 36,
    .server_cores = 1,
    .server_ranks = 1,
    .tensor_cache_nbytes = 2 << 20,
    .queue_depth = 1024,
    .driver_version = 13000,
    .nvml_driver = "580.95.05",
    .trace_first_step = 1,
    .trace_last_step = UINT64_MAX,
};

PH_EXPORT const char *phantora_host_kind(int kind) {
    static const char *const names[] = {
#define CALL(NAME, name, text) #name,
#define WORK(NAME, name, text) #name,
#define FINE WORK
#include "../../contract/definitions/host_kinds.def"
#undef CALL
#undef WORK
#undef FINE
    };
    return kind >= 0 && kind < PH_HOST_KINDS ? names[kind] : NULL;
}

enum { MAX_ATTRIBUTES = 256 };

static struct {
    bool given[MAX_ATTRIBUTES];
    int value[MAX_ATTRIBUTES];
} attributes;

static bool parse_u64(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
}

static bool parse_int(const char *text, int *value) {
    uint64_t wide;
    if (text[0] == '-') {
        if (!parse_u64(text + 1, &wide) || wide > INT32_MAX) return false;
        *value = -(int)wide;
        return true;
    }
    if (!parse_u64(text, &wide) || wide > INT32_MAX) return false;
    *value = (int)wide;
    return true;
}

static bool parse_u32(const char *text, uint32_t *value) {
    uint64_t wide;
    if (!parse_u64(text, &wide) || wide > UINT32_MAX) return false;
    *value = (uint32_t)wide;
    return true;
}

static bool parse_positive(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return *text && *end == 0 && *value > 0;
}

static bool parse_bool(const char *text, bool *value) {
    *value = strcmp(text, "1") == 0;
    return *value || strcmp(text, "0") == 0;
}

static bool parse_text(const char *text, char *value, size_t capacity) {
    size_t n = strlen(text);
    if (n == 0 || n >= capacity) return false;
    memcpy(value, text, n + 1);
    return true;
}

static bool parse_host_mode(const char *text) {
    static const char *const modes[] = {
        [PH_HOST_NONE] = "none", [PH_HOST_MODELLED] = "modelled", [PH_HOST_MEASURED] = "measured"};
    for (int mode = 0; mode < 3; mode++)
        if (strcmp(text, modes[mode]) == 0) {
            ph_cfg.host_mode = mode;
            return true;
        }
    return false;
}

static struct {
    uint32_t (*ranges)[2];
    size_t n, capacity;
} traced;

static bool parse_ranks(char *text) {
    char *dash = strchr(text, '-');
    uint32_t first, last;
    if (!dash) return false;
    *dash = 0;
    if (!parse_u32(text, &first) || !parse_u32(dash + 1, &last)) return false;
    traced.ranges = ph_room_for_one(traced.ranges, traced.n, &traced.capacity, sizeof *traced.ranges);
    traced.ranges[traced.n][0] = first;
    traced.ranges[traced.n++][1] = last;
    return true;
}

bool ph_config_traces(uint32_t rank) {
    for (size_t i = 0; i < traced.n; i++)
        if (traced.ranges[i][0] <= rank && rank <= traced.ranges[i][1]) return true;
    return false;
}

/* Returns 1 if the value was taken, 0 if it is bad, -1 if there is no such key. */
static int set_indexed(const char *key, const char *value) {
    if (strncmp(key, "attr.", 5) == 0) {
        int n;
        if (!parse_int(key + 5, &n) || n <= 0 || n >= MAX_ATTRIBUTES) return -1;
        attributes.given[n] = true;
        return parse_int(value, &attributes.value[n]);
    }
    if (strncmp(key, "host_ns.", 8) == 0)
        for (int kind = 0; kind < PH_HOST_KINDS; kind++)
            if (strcmp(key + 8, phantora_host_kind(kind)) == 0) return parse_u32(value, &ph_cfg.host_ns[kind]);
    return -1;
}

static int set_key(const char *key, char *value) {
#define KEY(name, parsed)                                                                                              \
    if (strcmp(key, #name) == 0) return parsed
    KEY(device_name, parse_text(value, ph_cfg.device_name, sizeof ph_cfg.device_name));
    KEY(device_count, parse_int(value, &ph_cfg.device_count));
    KEY(memory_nbytes, parse_u64(value, &ph_cfg.memory_nbytes));
    KEY(reserved_nbytes, parse_u64(value, &ph_cfg.reserved_nbytes));
    KEY(context_nbytes, parse_u64(value, &ph_cfg.context_nbytes));
    KEY(sm_count, parse_int(value, &ph_cfg.sm_count));
    KEY(cc_major, parse_int(value, &ph_cfg.cc_major));
    KEY(cc_minor, parse_int(value, &ph_cfg.cc_minor));
    KEY(launch_gap_ns, parse_u32(value, &ph_cfg.launch_gap_ns));
    KEY(graph_gap_ns, parse_u32(value, &ph_cfg.graph_gap_ns));
    KEY(power_window_ns, parse_u32(value, &ph_cfg.power_window_ns));
    KEY(power_idle, parse_u32(value, &ph_cfg.power_idle));
    KEY(data_limit_nbytes, parse_u64(value, &ph_cfg.data_limit_nbytes));
    KEY(float_limit_count, parse_u64(value, &ph_cfg.float_limit_count));
    KEY(host_mode, parse_host_mode(value));
    KEY(host_function_ns, parse_u32(value, &ph_cfg.host_function_ns));
    KEY(hot_within_functions, parse_u32(value, &ph_cfg.hot_within_functions));
    KEY(warm_within_functions, parse_u32(value, &ph_cfg.warm_within_functions));
    KEY(cold_after_functions, parse_u32(value, &ph_cfg.cold_after_functions));
    KEY(kept_table_nbytes, parse_u64(value, &ph_cfg.kept_table_nbytes));
    KEY(memory_threads, parse_positive(value, &ph_cfg.memory_threads));
    KEY(server_cores, parse_int(value, &ph_cfg.server_cores));
    KEY(server_ranks, parse_int(value, &ph_cfg.server_ranks));
    KEY(tensor_cache_nbytes, parse_u64(value, &ph_cfg.tensor_cache_nbytes));
    KEY(queue_depth, parse_u32(value, &ph_cfg.queue_depth));
    KEY(runtime_version, parse_int(value, &ph_cfg.runtime_version));
    KEY(driver_version, parse_int(value, &ph_cfg.driver_version));
    KEY(multicast, parse_int(value, &ph_cfg.multicast));
    KEY(nvlink_count, parse_int(value, &ph_cfg.nvlink_count));
    KEY(trace_ranks, parse_ranks(value));
    KEY(trace_first_step, parse_u64(value, &ph_cfg.trace_first_step));
    KEY(trace_last_step, parse_u64(value, &ph_cfg.trace_last_step));
    KEY(segment_contents, parse_bool(value, &ph_cfg.segment_contents));
    KEY(history, parse_bool(value, &ph_cfg.history));
    KEY(power_limit_w, parse_u32(value, &ph_cfg.power_limit_w));
    KEY(nvml_driver, parse_text(value, ph_cfg.nvml_driver, sizeof ph_cfg.nvml_driver));
    KEY(host_scale, parse_positive(value, &ph_cfg.host_scale));
#undef KEY
    return set_indexed(key, value);
}

/* Occupancy is computed from these. */
static const int needed_attributes[] = {
    cudaDevAttrMaxThreadsPerMultiProcessor,   cudaDevAttrMaxBlocksPerMultiprocessor,
    cudaDevAttrMaxRegistersPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,  cudaDevAttrReservedSharedMemoryPerBlock,
};

static const char *check(void) {
    if (ph_cfg.device_count < 1 || ph_cfg.device_count > PH_MAX_DEVICES) return "device_count must be 1 to 64";
    if (ph_cfg.reserved_nbytes >= ph_cfg.memory_nbytes) return "reserved_nbytes must be less than memory_nbytes";
    if (ph_cfg.server_cores < 1 || ph_cfg.server_ranks < 1) return "server_cores and server_ranks must be positive";
    if (ph_cfg.sm_count < 1 || ph_cfg.cc_major < 5) return "sm_count must be positive and cc_major at least 5";
    for (size_t i = 0; i < sizeof needed_attributes / sizeof *needed_attributes; i++)
        if (!attributes.given[needed_attributes[i]])
            return "these device attributes must be given: attr.39, attr.81, attr.82, attr.97, attr.106 and attr.111";
    return NULL;
}

static int fail(char *error, size_t capacity, const char *path, int line, const char *what, const char *text) {
    snprintf(error, capacity, "%s:%d: %s%s%s", path, line, what, *text ? ": " : "", text);
    return -1;
}

int ph_config_read(const char *path, char *error, size_t capacity) {
    FILE *file = fopen(path, "re");
    if (!file) return fail(error, capacity, path, 0, "cannot open the device file", strerror(errno));
    char line[512];
    int number = 0, status = 0;
    while (status == 0 && fgets(line, sizeof line, file)) {
        number++;
        line[strcspn(line, "\r\n")] = 0;
        if (line[0] == 0 || line[0] == '#') continue;
        char *equals = strchr(line, '=');
        if (!equals) {
            status = fail(error, capacity, path, number, "this line is not key=value", line);
            break;
        }
        *equals = 0;
        int taken = set_key(line, equals + 1);
        if (taken < 0)
            status = fail(error, capacity, path, number, "unknown key", line);
        else if (taken == 0)
            status = fail(error, capacity, path, number, "bad value for", line);
    }
    fclose(file);
    const char *wrong = status == 0 ? check() : NULL;
    return wrong ? fail(error, capacity, path, number, wrong, "") : status;
}

bool ph_device_attribute(int attribute, int *value) {
    bool given = attribute > 0 && attribute < MAX_ATTRIBUTES && attributes.given[attribute];
    *value = given ? attributes.value[attribute] : 0;
    return given;
}
