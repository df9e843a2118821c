/** Positions that a training can't have are rejected, with the reason. */

import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { requirePosition, type TrainerPosition } from "./position.js";

const layout = { batches: 5, accumulate: 2 };
const position: TrainerPosition = { epoch: 1, batch: 4, step: 5, losses: [1, Number.NaN] };

test("positions between two steps are accepted, up to the last batch", () => {
  requirePosition(position, layout);
  requirePosition({ ...position, batch: 5, losses: [1, 2, 3], step: 6 }, layout);
  requirePosition({ ...position, skipped: 3, skippedInEpoch: 2 }, layout);
  // At the start of an epoch, the data may have changed.
  requirePosition({ epoch: 7, batch: 0, step: 99, losses: [] }, layout);
});

test("all others are rejected", () => {
  const wrong: readonly (readonly [Partial<Record<keyof TrainerPosition, unknown>>, RegExp])[] = [
    [{ epoch: -1 }, /epoch is -1/],
    [{ epoch: undefined }, /epoch is undefined/],
    [{ batch: 1.5 }, /batch is 1\.5/],
    [{ step: "5" }, /step is 5/],
    [{ batch: 6 }, /at batch 6, but an epoch has 5 batches/],
    [{ batch: 3 }, /batch 3 with accumulate 2/],
    [{ losses: [1] }, /1 losses for 2 steps/],
    [{ losses: [1, "2"] }, /not a list of numbers/],
    [{ losses: undefined }, /not a list of numbers/],
    [{ step: 1 }, /step 1, but its epoch has 2/],
    [{ skipped: 1, skippedInEpoch: 2 }, /2 skipped steps/],
  ];
  for (const [change, message] of wrong)
    rejects(
      "BAD_STATE",
      () => requirePosition({ ...position, ...change } as TrainerPosition, layout),
      message,
    );
});
