/*
 * nvml/: what PyTorch and its users ask NVML about the GPUs. Values that depend on the load of a real GPU (utilisation,
 * power, temperature) are refused (calls.def): they are not modelled. Clocks are the highest that the GPU has.
 * Comes in: calls. Goes out: answers from the device file and from memory/.
 */
#include "core/config.h"
#include "cuda/attributes.h"
#include "device/device.h"
#include "memory/memory.h"
#include "op_stream/history.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NVML_OK = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7 };

typedef struct nvml_device {
    int index;
} nvml_device;
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;
typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} nvml_pci;
typedef struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
} nvml_process_v1;
typedef struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvml_process;

static nvml_device devices[PH_MAX_DEVICES];

static int index_of(const nvml_device *device) {
    ptrdiff_t i = device - devices;
    return device && i >= 0 && i < ph_cfg.device_count ? (int)i : -1;
}

static int handle(nvml_device **out, int index) {
    *out = index >= 0 && index < ph_cfg.device_count ? &devices[index] : NULL;
    return *out ? NVML_OK : NVML_INVALID_ARGUMENT;
}

static int text_out(char *text, unsigned capacity, const char *value) {
    if (capacity) text[0] = 0;
    if (strlen(value) >= capacity) return NVML_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return NVML_OK;
}

PH_EXPORT int nvmlInit_v2(void) { return NVML_OK; }
PH_EXPORT int nvmlInit(void) { return NVML_OK; }
PH_EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return NVML_OK;
}
PH_EXPORT int nvmlShutdown(void) { return NVML_OK; }

PH_EXPORT const char *nvmlErrorString(int status) {
    switch (status) {
    case NVML_OK:
        return "Success";
    case NVML_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_NOT_FOUND:
        return "Not Found";
    case NVML_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}

PH_EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned capacity) {
    return text_out(text, capacity, ph_cfg.nvml_driver);
}
PH_EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned capacity) {
    char version[48];
    snprintf(version, sizeof version, "%d.%s", ph_cfg.driver_version / 1000, ph_cfg.nvml_driver);
    return text_out(text, capacity, version);
}
PH_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = ph_cfg.driver_version;
    return NVML_OK;
}
PH_EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* ---- handles ----------------------------------------------------------------------------------------------------- */

PH_EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)ph_cfg.device_count;
    return NVML_OK;
}
PH_EXPORT int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

PH_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device **out) { return handle(out, (int)index); }
PH_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device **out) { return handle(out, (int)index); }

PH_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvml_device **out) {
    return handle(out, ph_device_of_pci(text)) == NVML_OK ? NVML_OK : NVML_NOT_FOUND;
}
PH_EXPORT int nvmlDeviceGetHandleByPciBusId(const char *text, nvml_device **out) {
    return nvmlDeviceGetHandleByPciBusId_v2(text, out);
}

PH_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device **out) {
    char text[PH_UUID_TEXT];
    for (int index = 0; index < ph_cfg.device_count; index++) {
        ph_device_uuid_text(index, text);
        if (strcmp(text, uuid) == 0) return handle(out, index);
    }
    *out = NULL;
    return NVML_NOT_FOUND;
}

/* ---- a device's facts -------------------------------------------------------------------------------------------- */

PH_EXPORT int nvmlDeviceGetIndex(nvml_device *device, unsigned *index) {
    int i = index_of(device);
    *index = i < 0 ? 0 : (unsigned)i;
    return i < 0 ? NVML_INVALID_ARGUMENT : NVML_OK;
}
PH_EXPORT int nvmlDeviceGetMinorNumber(nvml_device *device, unsigned *number) {
    return nvmlDeviceGetIndex(device, number);
}

PH_EXPORT int nvmlDeviceGetName(nvml_device *device, char *name, unsigned capacity) {
    PH_READS("name");
    return index_of(device) < 0 ? NVML_INVALID_ARGUMENT : text_out(name, capacity, ph_cfg.device_name);
}

PH_EXPORT int nvmlDeviceGetUUID(nvml_device *device, char *out, unsigned capacity) {
    char text[PH_UUID_TEXT];
    if (index_of(device) < 0) return NVML_INVALID_ARGUMENT;
    ph_device_uuid_text(index_of(device), text);
    return text_out(out, capacity, text);
}

PH_EXPORT int nvmlDeviceGetPciInfo_v3(nvml_device *device, nvml_pci *out) {
    memset(out, 0, sizeof *out);
    int index = index_of(device);
    if (index < 0) return NVML_INVALID_ARGUMENT;
    ph_device_pci(index, out->legacy, sizeof out->legacy);
    memcpy(out->text, "0000", 4); /* in this text the domain has eight digits */
    memcpy(out->text + 4, out->legacy, sizeof out->legacy);
    out->bus = (unsigned)ph_device_pci_bus(index);
    ph_device_attr(cudaDevAttrGpuPciDeviceId, index, (int *)&out->id);
    ph_device_attr(cudaDevAttrGpuPciSubsystemId, index, (int *)&out->subsystem);
    return NVML_OK;
}
PH_EXPORT int nvmlDeviceGetPciInfo_v2(nvml_device *device, nvml_pci *out) {
    return nvmlDeviceGetPciInfo_v3(device, out);
}

PH_EXPORT int nvmlDeviceGetCudaComputeCapability(nvml_device *device, int *major, int *minor) {
    PH_READS("capability");
    *major = ph_cfg.cc_major;
    *minor = ph_cfg.cc_minor;
    return index_of(device) < 0 ? NVML_INVALID_ARGUMENT : NVML_OK;
}

PH_EXPORT int nvmlDeviceGetArchitecture(nvml_device *device, unsigned *architecture) {
    PH_READS("capability");
    enum { VOLTA = 5, TURING = 6, AMPERE = 7, ADA = 8, HOPPER = 9, BLACKWELL = 10 };
    if (ph_cfg.cc_major == 7)
        *architecture = ph_cfg.cc_minor >= 5 ? TURING : VOLTA;
    else if (ph_cfg.cc_major == 8)
        *architecture = ph_cfg.cc_minor == 9 ? ADA : AMPERE;
    else
        *architecture = ph_cfg.cc_major >= 10 ? BLACKWELL : HOPPER;
    return index_of(device) < 0 ? NVML_INVALID_ARGUMENT : NVML_OK;
}

static int attribute_out(nvml_device *device, int attribute, int divisor, unsigned *out) {
    int value = 0, index = index_of(device);
    *out = 0;
    if (index < 0) return NVML_INVALID_ARGUMENT;
    ph_device_attr(attribute, index, &value);
    *out = (unsigned)(value / divisor);
    return NVML_OK;
}

PH_EXPORT int nvmlDeviceGetMemoryBusWidth(nvml_device *device, unsigned *bits) {
    PH_READS("memory_bus_width");
    return attribute_out(device, cudaDevAttrGlobalMemoryBusWidth, 1, bits);
}

PH_EXPORT int nvmlDeviceGetNumGpuCores(nvml_device *device, unsigned *cores) {
    PH_READS("multi_processor_count");
    bool half = ph_cfg.cc_major == 7 || (ph_cfg.cc_major == 8 && ph_cfg.cc_minor == 0);
    *cores = (unsigned)ph_cfg.sm_count * (half ? 64 : 128);
    return index_of(device) < 0 ? NVML_INVALID_ARGUMENT : NVML_OK;
}

PH_EXPORT int nvmlDeviceGetEccMode(nvml_device *device, unsigned *current, unsigned *pending) {
    int status = attribute_out(device, cudaDevAttrEccEnabled, 1, current);
    *pending = *current;
    return status;
}

/* Clocks in MHz. Current clocks depend on the load; here a GPU always runs at its highest. */
PH_EXPORT int nvmlDeviceGetMaxClockInfo(nvml_device *device, int type, unsigned *mhz) {
    PH_READS("clocks");
    enum { GRAPHICS, SM, MEMORY };
    *mhz = 0;
    if (type == GRAPHICS || type == SM) return attribute_out(device, cudaDevAttrClockRate, 1000, mhz);
    if (type == MEMORY) return attribute_out(device, cudaDevAttrMemoryClockRate, 1000, mhz);
    return index_of(device) < 0 ? NVML_INVALID_ARGUMENT : NVML_NOT_SUPPORTED; /* the video engine's */
}
PH_EXPORT int nvmlDeviceGetClockInfo(nvml_device *device, int type, unsigned *mhz) {
    PH_READS("clocks");
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

/* Power limits in mW. */
PH_EXPORT int nvmlDeviceGetPowerManagementLimit(nvml_device *device, unsigned *limit) {
    PH_READS("power_limit");
    *limit = ph_cfg.power_limit_w * 1000;
    if (index_of(device) < 0) return NVML_INVALID_ARGUMENT;
    return *limit ? NVML_OK : NVML_NOT_SUPPORTED;
}
PH_EXPORT int nvmlDeviceGetEnforcedPowerLimit(nvml_device *device, unsigned *limit) {
    PH_READS("power_limit");
    return nvmlDeviceGetPowerManagementLimit(device, limit);
}
PH_EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(nvml_device *device, unsigned *limit) {
    PH_READS("power_limit");
    return nvmlDeviceGetPowerManagementLimit(device, limit);
}

static bool memory_of(nvml_device *device, unsigned long long *free_nbytes, unsigned long long *total) {
    size_t available = 0, all = 0;
    int index = index_of(device);
    if (index >= 0) ph_memory_info(index, &available, &all);
    *free_nbytes = available;
    *total = all;
    return index >= 0;
}

PH_EXPORT int nvmlDeviceGetMemoryInfo(nvml_device *device, nvml_memory *out) {
    PH_READS("total_memory");
    bool known = memory_of(device, &out->free, &out->total);
    out->used = out->total - out->free;
    return known ? NVML_OK : NVML_INVALID_ARGUMENT;
}

PH_EXPORT int nvmlDeviceGetMemoryInfo_v2(nvml_device *device, nvml_memory_v2 *out) {
    PH_READS("total_memory");
    bool known = memory_of(device, &out->free, &out->total);
    out->reserved = known ? ph_cfg.reserved_nbytes : 0;
    out->used = known ? out->total - out->free - out->reserved : 0;
    return known ? NVML_OK : NVML_INVALID_ARGUMENT;
}

static int processes(nvml_device *device, unsigned *count, size_t stride, void *out) {
    int index = index_of(device);
    unsigned room = *count;
    *count = 1;
    if (index < 0) return NVML_INVALID_ARGUMENT;
    if (room == 0 || !out) return NVML_INSUFFICIENT_SIZE;
    nvml_process self = {.pid = (unsigned)getpid(),
                         .used = ph_cfg.reserved_nbytes + ph_memory_used(index), /* its context is its own */
                         .gpu_instance = ~0u,
                         .compute_instance = ~0u};
    memcpy(out, &self, stride);
    return NVML_OK;
}

PH_EXPORT int nvmlDeviceGetComputeRunningProcesses(nvml_device *device, unsigned *count, nvml_process_v1 *out) {
    return processes(device, count, sizeof *out, out);
}
PH_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device *device, unsigned *count, nvml_process *out) {
    return processes(device, count, sizeof *out, out);
}
PH_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device *device, unsigned *count, nvml_process *out) {
    return processes(device, count, sizeof *out, out);
}

PH_EXPORT int nvmlDeviceGetP2PStatus(nvml_device *a, nvml_device *b, int which, int *status) {
    enum { P2P_OK = 0, P2P_ATOMICS = 3, P2P_NOT_SUPPORTED = 5 };
    *status = which <= P2P_ATOMICS ? P2P_OK : P2P_NOT_SUPPORTED;
    return index_of(a) < 0 || index_of(b) < 0 ? NVML_INVALID_ARGUMENT : NVML_OK;
}

/* ---- NVLink: every link of a server's GPUs ends at a switch ------------------------------------------------------ */

PH_EXPORT int nvmlDeviceGetNvLinkState(nvml_device *device, unsigned link, unsigned *active) {
    *active = index_of(device) >= 0 && link < (unsigned)ph_cfg.nvlink_count;
    return index_of(device) < 0 || link >= (unsigned)ph_cfg.nvlink_count ? NVML_INVALID_ARGUMENT : NVML_OK;
}

PH_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device *device, unsigned link, int *type) {
    enum { SWITCH = 2, UNKNOWN = 255 };
    bool exists = index_of(device) >= 0 && link < (unsigned)ph_cfg.nvlink_count;
    *type = exists ? SWITCH : UNKNOWN;
    return exists ? NVML_OK : NVML_INVALID_ARGUMENT;
}

PH_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device *device, unsigned link, nvml_pci *out) {
    memset(out, 0, sizeof *out);
    bool exists = index_of(device) >= 0 && link < (unsigned)ph_cfg.nvlink_count;
    if (!exists) return NVML_INVALID_ARGUMENT;
    out->bus = 0xe0 + link % 4; /* a switch of the server */
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    snprintf(out->text, sizeof out->text, "00000000:%02X:00.0", out->bus);
    return NVML_OK;
}

/* ---- fabric: GPUs of one server share memory without a fabric manager that joins servers --------------------------
 */

typedef struct nvml_fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state; /* 0: not supported */
    unsigned health;
} nvml_fabric;

PH_EXPORT int nvmlDeviceGetGpuFabricInfoV(nvml_device *device, nvml_fabric *out) {
    if (index_of(device) < 0 || !out) return NVML_INVALID_ARGUMENT;
    unsigned version = out->version;
    memset(out, 0, sizeof *out);
    out->version = version;
    return NVML_OK;
}
