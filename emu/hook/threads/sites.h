/* Finds where in the user's program the calling thread is. */
#ifndef PHANTORA_SITES_H
#define PHANTORA_SITES_H

#include <stdbool.h>
#include <stdint.h>

/* The number of the calling thread's place in the program; announces a new one. 0: unknown. Must not be called under
 * the record lock. */
uint16_t ph_site(void);
/* Likewise, of a call for which others wait, or which waits for them: the place with the line that called its function
 * is told apart from the same line that another one has called. */
uint16_t ph_site_with_caller(void);
/* Returns the site of a thread in which somebody reads what kind of GPU there is: the script's line if the script
 * itself reads it, by functions that do no more than that (torch.cuda.get_device_properties, pynvml); 0 where a
 * library reads it for its own choices. *family: only whether the GPU is of Ampere's generation or later is asked
 * (torch.cuda.is_bf16_supported). */
uint16_t ph_site_of_reader(bool *family);
/* The calling thread works for another thread, whose place this is: it counts as the place from now on. */
void ph_site_inherit(uint16_t site);
/* The user's line where the calling thread is, as `file:line`; "" if unknown. */
const char *ph_python_line(char *text, int capacity);

#endif
