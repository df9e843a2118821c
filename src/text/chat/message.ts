/** A message of a chat. */

/** A message of a chat. Templates may use more fields than these. */
export interface ChatMessage {
  /** Usually "system", "user", "assistant" or "tool". */
  readonly role: string;
  readonly content: unknown;
  readonly [field: string]: unknown;
}
