/* Where in the user's program the calling thread is. */
#ifndef PHANTORA_SITES_H
#define PHANTORA_SITES_H

#include <stdint.h>

/* The number of the calling thread's place in the program; announces a new one. 0: unknown. Must not be called under
 * the record lock. */
uint16_t ph_site(void);
/* The calling thread works for another thread, whose place this is: it counts as the place from now on. */
void ph_site_inherit(uint16_t site);
/* The user's line where the calling thread is, as `file:line`; "" if unknown. */
const char *ph_python_line(char *text, int capacity);

#endif
