/** Routes and addresses convert into each other. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import { formatRoute, parseRoute, tabs } from "./route.js";

test("every route survives a round trip through its address, with any names of runs", () => {
  const name = fc.string({ minLength: 1 });
  fc.assert(
    fc.property(name, fc.constantFrom(...tabs), fc.uniqueArray(name), (run, tab, names) => {
      const route = { run, tab, others: names.filter((other) => other !== run) };
      assert.deepEqual(parseRoute(formatRoute(route)), route);
    }),
  );
});

test("an empty or invalid address is the first tab", () => {
  assert.deepEqual(parseRoute(""), { run: undefined, tab: "learning", others: [] });
  assert.deepEqual(parseRoute("#/%E0%A4%A/nowhere"), { run: "%E0%A4%A", tab: "learning", others: [] });
  assert.equal(formatRoute({ run: undefined, tab: "speed", others: [] }), "#/");
});

test("a run is not compared with itself", () => {
  assert.deepEqual(parseRoute("#/a/speed?with=a&with=b&with=b").others, ["b"]);
});
