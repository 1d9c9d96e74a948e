/* Devices are numbered in each process by CUDA_VISIBLE_DEVICES; GPUs are numbered on their server. */
#ifndef PHANTORA_VISIBLE_H
#define PHANTORA_VISIBLE_H

int ph_visible_count(void);
int ph_visible_gpu(int device); /* the GPU that the process calls by this number */
int ph_visible_as(int gpu);     /* the opposite; -1 if the process does not see it */
/* The environment is read again when the process next asks. */
void ph_visible_forget(void);

#endif
