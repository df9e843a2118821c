/** The settings: their order of precedence, and the rejection of invalid ones by name. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "../errors/index.js";
import { GiB, MiB } from "../units/index.js";
import { readSettings, type SettingOptions, settingsTable } from "./settings.js";

const rejects = (options: SettingOptions, environment: Record<string, string>, message: RegExp): void => {
  assert.throws(
    () => readSettings(options, environment),
    (error) => error instanceof HoldfastError && error.code === "BAD_SETTING" && message.test(error.message),
  );
};

test("without options or environment every setting has its default", () => {
  const settings = readSettings({}, {});
  assert.equal(settings.memory, "auto");
  assert.equal(settings.staging, 32 * MiB);
  assert.equal(settings.poison, false);
  assert.equal(settings.stallAfter, 30_000);
});

test("an option comes before the environment, and the environment before the default", () => {
  const environment = { HOLDFAST_MEMORY: "2GiB", HOLDFAST_CAPTURE: "off", PATH: "/bin" };
  const settings = readSettings({ memory: "1GiB" }, environment);
  assert.equal(settings.memory, GiB);
  assert.equal(settings.capture, "off");
  assert.equal(settings.poison, false);
});

test("options can be values instead of texts", () => {
  const settings = readSettings(
    { memory: (3 * GiB) as never, poison: true, stallAfter: "off", threads: 2 },
    {},
  );
  assert.deepEqual(
    [settings.memory, settings.poison, settings.stallAfter, settings.threads],
    [3 * GiB, true, "off", 2],
  );
});

test("every example in the table can be parsed", () => {
  for (const row of Object.values(settingsTable))
    assert.doesNotThrow(() => row.parse(row.example), row.variable);
});

test("an unknown option or variable is rejected, with the nearest valid name", () => {
  rejects({}, { HOLDFAST_MEMROY: "1GiB" }, /no variable HOLDFAST_MEMROY. Did you mean HOLDFAST_MEMORY\?/);
  rejects({ memori: "1GiB" } as SettingOptions, {}, /no option memori. Did you mean memory\?/);
});

for (const [variable, text] of [
  ["HOLDFAST_MEMORY", "0GiB"],
  ["HOLDFAST_MEMORY", "-1GiB"],
  ["HOLDFAST_MEMORY", "64"],
  ["HOLDFAST_MEMORY", "64GB"],
  ["HOLDFAST_MEMORY", ""],
  ["HOLDFAST_MEMORY", "1e3GiB"],
  ["HOLDFAST_ARENA", "much"],
  ["HOLDFAST_STAGING", "auto"],
  ["HOLDFAST_POISON", "yes"],
  ["HOLDFAST_CAPTURE", "relaxed"],
  ["HOLDFAST_STALL_AFTER", "30"],
  ["HOLDFAST_STALL_AFTER", "0s"],
  ["HOLDFAST_STALL_AFTER", "-5s"],
  ["HOLDFAST_THREADS", "0"],
  ["HOLDFAST_THREADS", "1.5"],
  ["HOLDFAST_REPORTS", ""],
] as const) {
  test(`${variable}="${text}" is rejected, naming the variable and an example`, () => {
    rejects({}, { [variable]: text }, new RegExp(`^${variable}: .* Example: `));
  });
}

test("a malformed variable is rejected even if an option overrides it", () => {
  rejects({ memory: "1GiB" }, { HOLDFAST_MEMORY: "lots" }, /^HOLDFAST_MEMORY: "lots" is not a size/);
});

test("a value of the wrong type or range is rejected", () => {
  rejects(
    { memory: Number.NaN as never },
    {},
    /Option memory is NaN; it takes size \| auto, for example 64GiB/,
  );
  rejects({ threads: -1 }, {}, /Option threads/);
  rejects({ poison: 1 as never }, {}, /Option poison/);
});
