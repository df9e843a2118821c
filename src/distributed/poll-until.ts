/** How a rank waits for a library that it must ask. */

import { sleepSync } from "../units/index.js";

/** Pauses grow to the second. Other ranks may need this processor. */
const [firstPauseMs, maxPauseMs] = [0.02, 1];
const growth = 1.5;

/** Asks until it is done: first some times in a row, then with growing pauses. `goesOn` is called before each pause; false ends the wait. */
export function pollUntil(isDone: () => boolean, goesOn: () => boolean, asksInARow: number): void {
  let pauseMs = firstPauseMs;
  for (let asked = 0; !isDone(); asked++) {
    if (asked < asksInARow) continue;
    if (!goesOn()) return;
    sleepSync(pauseMs);
    pauseMs = Math.min(maxPauseMs, pauseMs * growth);
  }
}
