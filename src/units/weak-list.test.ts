/** A list that keeps nothing alive. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { collectGarbage } from "../../test/support/gc.js";
import { WeakList } from "./weak-list.js";

test("contains each object once, in order, as long as another reference keeps it alive", async () => {
  const list = new WeakList<{ readonly name: string }>();
  const [first, second] = [{ name: "first" }, { name: "second" }];
  for (const item of [first, second, first]) list.add(item);
  for (let index = 0; index < 100; index++) list.add({ name: `${index}` });
  await setImmediate();
  collectGarbage();
  assert.deepEqual(list.items(), [first, second]);
});
