/*
 * CUDA_VISIBLE_DEVICES: which GPUs of its server a process sees, and in which order. As in CUDA, the list ends at the
 * first entry that names no GPU, and a GPU that is named twice makes all invisible.
 */
#include "core/config.h"
#include "core/lock.h"
#include "device/device.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct {
    atomic_int count; /* UNREAD until the process first asks, as with real CUDA */
    int gpus[PH_MAX_DEVICES];
} visible = {.count = -1};
enum { UNREAD = -1, NONE = -1 };

/* The GPU that an entry names by its number or by the beginning of its UUID; NONE if there is no such GPU. */
static int named(const char *entry, size_t n) {
    if (n > 4 && strncmp(entry, "GPU-", 4) == 0) {
        int found = NONE;
        for (int gpu = 0; gpu < ph_cfg.device_count; gpu++) {
            char text[PH_UUID_TEXT];
            ph_device_uuid_text(gpu, text);
            if (n < sizeof text && strncmp(text, entry, n) == 0) {
                if (found != NONE) return NONE; /* ambiguous */
                found = gpu;
            }
        }
        return found;
    }
    if (n == 0 || n > 4) return NONE;
    int gpu = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)entry[i])) return NONE;
        gpu = 10 * gpu + (entry[i] - '0');
    }
    return gpu < ph_cfg.device_count ? gpu : NONE;
}

static int read_list(const char *list) {
    int count = 0;
    while (list) {
        while (*list == ' ') list++;
        size_t n = strcspn(list, ","), used = n;
        while (n && list[n - 1] == ' ') n--;
        int gpu = named(list, n);
        if (gpu == NONE) break;
        for (int i = 0; i < count; i++)
            if (visible.gpus[i] == gpu) return 0;
        visible.gpus[count++] = gpu;
        list = list[used] ? list + used + 1 : NULL;
    }
    return count;
}

static int read_once(void) {
    ph_lock(PH_LOCK_VISIBLE);
    int count = atomic_load(&visible.count);
    if (count == UNREAD) {
        const char *list = getenv("CUDA_VISIBLE_DEVICES");
        if (list) {
            count = read_list(list);
        } else {
            for (count = 0; count < ph_cfg.device_count; count++) visible.gpus[count] = count;
        }
        atomic_store(&visible.count, count);
    }
    ph_unlock(PH_LOCK_VISIBLE);
    return count;
}

void ph_visible_forget(void) { atomic_store(&visible.count, UNREAD); }

int ph_visible_count(void) {
    int count = atomic_load_explicit(&visible.count, memory_order_acquire);
    return LIKELY(count != UNREAD) ? count : read_once();
}

int ph_visible_gpu(int device) { return device >= 0 && device < ph_visible_count() ? visible.gpus[device] : device; }

int ph_visible_as(int gpu) {
    for (int device = 0, count = ph_visible_count(); device < count; device++)
        if (visible.gpus[device] == gpu) return device;
    return NONE;
}
