/* See python_frames.h. The functions of Python are looked up by name, because the library also runs without Python. */
#include "threads/python_frames.h"

#include <dlfcn.h>
#include <string.h>

ph_frame_layout ph_frame_layout_now;

static struct {
    void *(*thread_state)(void);
    int (*line)(void *code, int instruction);
    ptrdiff_t (*length)(void *text);
    uint32_t (*character)(void *text, ptrdiff_t index);
    void *code_type;
} python;

bool ph_frames_readable(const int32_t *offsets) {
    const struct {
        const char *name;
        void *to;
    } needed[] = {{"PyGILState_GetThisThreadState", &python.thread_state},
                  {"PyCode_Addr2Line", &python.line},
                  {"PyUnicode_GetLength", &python.length},
                  {"PyUnicode_ReadChar", &python.character},
                  {"PyCode_Type", &python.code_type}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        void *address = dlsym(RTLD_DEFAULT, needed[i].name);
        if (!address) return false;
        memcpy(needed[i].to, &address, sizeof address);
    }
    memcpy(&ph_frame_layout_now, offsets, sizeof ph_frame_layout_now);
    return true;
}

uintptr_t ph_frame_newest(void) {
    uintptr_t thread = (uintptr_t)python.thread_state();
    if (!thread) return 0;
    uintptr_t link = ph_word(thread, ph_frame_layout_now.thread_link);
    int32_t frame = ph_frame_layout_now.link_frame;
    return link && frame >= 0 ? ph_word(link, frame) : link;
}

bool ph_is_code(uintptr_t code) { return code && ph_word(code, sizeof(uintptr_t)) == (uintptr_t)python.code_type; }

int ph_code_line(uintptr_t code, int instruction) { return python.line((void *)code, instruction); }

size_t ph_python_text(uintptr_t text, char *out, size_t capacity) {
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    ptrdiff_t length = text ? python.length((void *)text) : 0;
    size_t n = 0;
    for (ptrdiff_t i = 0; i < length && n + 5 < capacity; i++) {
        uint32_t c = python.character((void *)text, i);
        if (c < 0x80) {
            out[n++] = (char)c;
        } else {
            int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            out[n++] = (char)(lead[more] | c >> 6 * more);
            while (more-- > 0) out[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
        }
    }
    out[n] = 0;
    return n;
}
