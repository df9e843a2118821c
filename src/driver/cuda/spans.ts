/** Rejects device memory that is not there: an illegal address would take the whole context with it. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan, type Span } from "../../units/index.js";
import type { Reservations } from "../reservations.js";

export function requireLive(book: Reservations, span: Span, what: string | (() => string)): void {
  if (book.holds(span)) return;
  const subject = typeof what === "string" ? what : what();
  const message = `${subject} is ${formatSpan(span)}, where no memory is committed. Pass a span inside a committed part of a reservation.`;
  throw new HoldfastError("DEAD_ADDRESS", message, { numbers: { address: span.address, size: span.size } });
}
