/* Messages to the user. */
#ifndef PHANTORA_WARN_H
#define PHANTORA_WARN_H

/* Prints the message on stderr and sends it to the coordinator as a WARNING record, once per name. */
void ph_warn_once(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Refuses a call that is not emulated: warns once per name, counts the call, returns `status`. */
int ph_refuse(const char *name, int status);

#endif
