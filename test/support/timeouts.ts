/** Real time limits of tests. A crowded machine may be ten times slower than usual, for minutes. */

/**
 * How long a test waits for an event that must come: a message, the end of a process, a text on a page. Only a fault exceeds it. The
 * event ends the wait, so a long limit costs nothing.
 */
export const generousTimeoutMs = 300_000;
