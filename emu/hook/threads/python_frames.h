/*
 * Frames of the interpreter as they lie in memory, by the offsets that emu/interpreter/frame_layout.py finds.
 *
 * Calls come from threads that have released Python's lock and that may hold locks of PyTorch's. Taking Python's lock
 * here could deadlock, and is slow. It is not needed: only the thread itself changes its frames. The code object of a
 * running frame stays alive, and the members that are read here never change.
 */
#ifndef PHANTORA_PYTHON_FRAMES_H
#define PHANTORA_PYTHON_FRAMES_H

#include "core/base.h"

enum { PH_POINTER_TAG = 7 }; /* low bits of a pointer that CPython may use as flags */

/* See FrameLayout in emu/interpreter/frame_layout.py. */
typedef struct ph_frame_layout {
    int32_t thread_link, link_frame, frame_previous, frame_code, frame_instruction, code_start, code_filename,
        code_function, frame_locals;
} ph_frame_layout;

extern ph_frame_layout ph_frame_layout_now;

/* Takes the offsets. False if this Python lacks a function that reading needs. */
bool ph_frames_readable(const int32_t *offsets);

static inline uintptr_t ph_word(uintptr_t at, int32_t offset) {
    return *(const uintptr_t *)(at + (uintptr_t)(intptr_t)offset);
}
/* The calling thread's newest frame; 0 if it has none. */
uintptr_t ph_frame_newest(void);
static inline uintptr_t ph_frame_previous(uintptr_t frame) {
    return ph_word(frame, ph_frame_layout_now.frame_previous);
}
/* Returns what the frame runs: a code object, except in frames that C code has entered. */
static inline uintptr_t ph_frame_code(uintptr_t frame) {
    return ph_word(frame, ph_frame_layout_now.frame_code) & ~(uintptr_t)PH_POINTER_TAG;
}
/* Returns how far the frame's instruction is from the first one of its code, in bytes. */
static inline intptr_t ph_frame_instruction(uintptr_t frame, uintptr_t code) {
    return (intptr_t)(ph_word(frame, ph_frame_layout_now.frame_instruction) - code) - ph_frame_layout_now.code_start;
}
/* The frame's first local variable, an object; 0 if this Python does not let us find it. */
static inline uintptr_t ph_frame_first_local(uintptr_t frame) {
    int32_t at = ph_frame_layout_now.frame_locals;
    return at < 0 ? 0 : ph_word(frame, at) & ~(uintptr_t)PH_POINTER_TAG;
}
bool ph_is_code(uintptr_t code);
/* The line of an instruction. */
int ph_code_line(uintptr_t code, int instruction);
/* Names of a code object: Python texts. A function's is 0 if this Python does not keep it. */
static inline uintptr_t ph_code_file(uintptr_t code) { return ph_word(code, ph_frame_layout_now.code_filename); }
static inline uintptr_t ph_code_function(uintptr_t code) {
    int32_t at = ph_frame_layout_now.code_function;
    return at < 0 ? 0 : ph_word(code, at);
}
/* Writes a Python text as UTF-8, as far as it fits; returns its bytes. */
size_t ph_python_text(uintptr_t text, char *out, size_t capacity);

#endif
