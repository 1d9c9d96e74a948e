/*
 * The device file: what this run's GPUs and hosts are. `key=value` lines, `#` comments, written by the coordinator
 * from the profiles and read once, in the forker.
 *
 *   device_name device_count memory_nbytes reserved_nbytes sm_count cc_major cc_minor
 *   data_limit_nbytes float_limit_count
 *   host_mode=none|modelled|measured  host_scale  host_function_ns  queue_depth
 *   host_ns.<kind>                   what one takes of the host; the kinds are those of host_costs.def
 *   runtime_version driver_version   as CUDA numbers them: 13000
 *   nvml_driver                      the driver's name, 580.95.05
 *   nvlink_count                     links of a GPU to the switches of its server
 *   attr.<cudaDeviceAttr>            a device attribute; those not given follow from the compute capability
 *
 * Unknown keys are errors: a misspelt one would silently describe another machine.
 */
#include "core/core.h"

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
    .queue_depth = 1024,
};
ph_config_more ph_cfg_more = {.runtime_version = 13000, .driver_version = 13000, .nvml_driver = "580.95.05"};

static struct {
    bool given[PH_MAX_ATTRIBUTES];
    int value[PH_MAX_ATTRIBUTES];
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

/* 1: taken, 0: bad value, -1: no such key */
static int set_indexed(const char *key, const char *value) {
    if (strncmp(key, "attr.", 5) == 0) {
        int n;
        if (!parse_int(key + 5, &n) || n <= 0 || n >= PH_MAX_ATTRIBUTES) return -1;
        attributes.given[n] = true;
        return parse_int(value, &attributes.value[n]);
    }
    if (strncmp(key, "host_ns.", 8) == 0)
        for (int kind = 0; kind < PH_HOST_KINDS; kind++)
            if (strcmp(key + 8, phantora_host_kind(kind)) == 0) return parse_u32(value, &ph_cfg.host_ns[kind]);
    return -1;
}

static int set_key(const char *key, const char *value) {
#define KEY(name, parsed)                                                                                              \
    if (strcmp(key, #name) == 0) return parsed
    KEY(device_name, parse_text(value, ph_cfg.device_name, sizeof ph_cfg.device_name));
    KEY(device_count, parse_int(value, &ph_cfg.device_count));
    KEY(memory_nbytes, parse_u64(value, &ph_cfg.memory_nbytes));
    KEY(reserved_nbytes, parse_u64(value, &ph_cfg.reserved_nbytes));
    KEY(sm_count, parse_int(value, &ph_cfg.sm_count));
    KEY(cc_major, parse_int(value, &ph_cfg.cc_major));
    KEY(cc_minor, parse_int(value, &ph_cfg.cc_minor));
    KEY(data_limit_nbytes, parse_u64(value, &ph_cfg.data_limit_nbytes));
    KEY(float_limit_count, parse_u64(value, &ph_cfg.float_limit_count));
    KEY(host_mode, parse_host_mode(value));
    KEY(host_function_ns, parse_u32(value, &ph_cfg.host_function_ns));
    KEY(queue_depth, parse_u32(value, &ph_cfg.queue_depth));
    KEY(runtime_version, parse_int(value, &ph_cfg_more.runtime_version));
    KEY(driver_version, parse_int(value, &ph_cfg_more.driver_version));
    KEY(nvlink_count, parse_int(value, &ph_cfg_more.nvlink_count));
    KEY(nvml_driver, parse_text(value, ph_cfg_more.nvml_driver, sizeof ph_cfg_more.nvml_driver));
#undef KEY
    if (strcmp(key, "host_scale") == 0) {
        char *end;
        ph_cfg.host_scale = strtod(value, &end);
        return *value && *end == 0 && ph_cfg.host_scale > 0;
    }
    return set_indexed(key, value);
}

static const char *check(void) {
    if (ph_cfg.device_count < 1 || ph_cfg.device_count > PH_MAX_DEVICES) return "device_count must be 1 to 64";
    if (ph_cfg.reserved_nbytes >= ph_cfg.memory_nbytes) return "reserved_nbytes must be less than memory_nbytes";
    if (ph_cfg.sm_count < 1 || ph_cfg.cc_major < 5) return "sm_count must be positive and cc_major at least 5";
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
            status = fail(error, capacity, path, number, "not key=value", line);
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

/* What follows from the compute capability (CUDA programming guide, technical specifications per compute capability).
 */
static int by_capability(int attribute) {
    int cc = ph_cfg.cc_major * 10 + ph_cfg.cc_minor;
    bool datacentre = cc == 80 || cc == 90 || cc == 100 || cc == 103 || cc == 70;
    int shared_kb = cc == 70 ? 96 : cc == 75 ? 64 : cc == 80 || cc == 87 ? 164 : cc == 90 || cc / 10 == 10 ? 228 : 100;
    switch (attribute) {
    case 39:
        return cc == 75 ? 1024 : datacentre ? 2048 : 1536; /* threads per SM */
    case 106:
        return cc == 75 ? 16 : datacentre ? 32 : cc == 86 ? 16 : 24; /* blocks per SM */
    case 81:
        return shared_kb << 10; /* shared per SM */
    case 97:
        return cc < 80 ? shared_kb << 10 : (shared_kb - 1) << 10; /* shared per block, opt-in */
    case 111:
        return cc < 80 ? 0 : 1024; /* shared, reserved */
    case 120:
    case 127:
        return cc >= 90; /* clusters, tensor maps */
    default:
        return 0;
    }
}

static int by_rule(int attribute) {
    switch (attribute) {
    case 1:
    case 2:
    case 3:
        return 1024;
    case 4:
        return 64;
    case 5:
        return INT32_MAX;
    case 6:
    case 7:
        return 65535;
    case 8:
        return 49152;
    case 9:
        return 65536;
    case 10:
        return 32;
    case 11:
        return INT32_MAX;
    case 12:
    case 82:
        return 65536;
    case 13:
        return 1980000;
    case 14:
    case 30:
        return 512;
    case 16:
        return ph_cfg.sm_count;
    case 36:
        return 3200000;
    case 37:
        return 5120;
    case 38:
        return 50 << 20;
    case 40:
        return 3;
    case 51:
        return 32;
    case 75:
        return ph_cfg.cc_major;
    case 76:
        return ph_cfg.cc_minor;
    case 87:
        return 2;
    case 108:
        return 32 << 20;
    case 109:
        return 128 << 20;
    case 119:
        return 1;
    case 126:
        return 4;
    case 134:
        return -1;
    /* what every such GPU can do */
    case 15:
    case 19:
    case 31:
    case 32:
    case 41:
    case 78:
    case 79:
    case 80:
    case 83:
    case 89:
    case 90:
    case 91:
    case 92:
    case 93:
    case 94:
    case 95:
    case 98:
    case 99:
    case 102:
    case 103:
    case 113:
    case 114:
    case 115:
    case 122:
    case 123:
    case 125:
        return 1;
    /* multicast objects and fabric handles are not modelled, and so not offered: 128, 132 */
    default:
        return by_capability(attribute);
    }
}

bool ph_device_attribute(int attribute, int *value) {
    *value = 0;
    if (attribute <= 0 || attribute >= PH_MAX_ATTRIBUTES) return false;
    *value = attributes.given[attribute] ? attributes.value[attribute] : by_rule(attribute);
    return true;
}
