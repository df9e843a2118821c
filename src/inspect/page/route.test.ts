/** An address leads back to where it was made. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import { formatRoute, parseRoute, tabs } from "./route.js";

test("every route survives a round trip through its address, whatever the runs' names", () => {
  const name = fc.string({ minLength: 1 });
  fc.assert(
    fc.property(name, fc.constantFrom(...tabs), fc.uniqueArray(name), (run, tab, names) => {
      const route = { run, tab, others: names.filter((other) => other !== run) };
      assert.deepEqual(parseRoute(formatRoute(route)), route);
    }),
  );
});

test("an address that says nothing, or nonsense, is the first tab", () => {
  assert.deepEqual(parseRoute(""), { run: undefined, tab: "learning", others: [] });
  assert.deepEqual(parseRoute("#/%E0%A4%A/nowhere"), { run: "%E0%A4%A", tab: "learning", others: [] });
  assert.equal(formatRoute({ run: undefined, tab: "speed", others: [] }), "#/");
});

test("a run is not laid over itself", () => {
  assert.deepEqual(parseRoute("#/a/speed?with=a&with=b&with=b").others, ["b"]);
});
