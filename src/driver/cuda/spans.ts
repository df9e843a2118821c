/** Rejects spans that are not committed: an illegal address would destroy the whole context. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan, type Span } from "../../units/index.js";
import type { Reservations } from "../reservations.js";

export function requireLive(reservations: Reservations, span: Span, what: string | (() => string)): void {
  if (reservations.holds(span)) return;
  const subject = typeof what === "string" ? what : what();
  const message = `${subject} is ${formatSpan(span)}, which is not committed. Pass a span inside a committed range of a reservation.`;
  throw new HoldfastError("DEAD_ADDRESS", message, { numbers: { address: span.address, size: span.size } });
}
