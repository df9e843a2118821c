/** Throughput: which samples and times count, and when it is reported. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Throughput } from "./throughput.js";

test("an epoch's figure is its samples over its time, the smaller last batch too", () => {
  const meter = new Throughput();
  meter.beginEpoch(500);
  for (const samples of [32, 32, 4]) meter.add(samples);
  assert.equal(meter.endEpoch(1500), 68);
});

test("a call that compiles a plan is excluded, with its time and its samples", () => {
  const meter = new Throughput();
  meter.beginEpoch(0);
  meter.exclude(5000);
  for (let step = 0; step < 10; step++) meter.add(32);
  assert.equal(meter.endEpoch(7000), 160);
});

test("an epoch in which every step compiled a plan has no figure", () => {
  const meter = new Throughput();
  assert.equal(meter.rate(0), undefined);
  meter.beginEpoch(0);
  meter.exclude(4800);
  assert.equal(meter.endEpoch(4800), undefined);
  assert.equal(meter.rate(4800), undefined);
});

test("a new epoch shows the last one's figure, and its own after a second", () => {
  const meter = new Throughput();
  meter.beginEpoch(0);
  meter.add(1000);
  assert.equal(meter.endEpoch(2000), 500);
  assert.equal(meter.rate(60_000), 500, "a test or a checkpoint in between counts for nothing");
  meter.beginEpoch(60_000);
  meter.add(2);
  assert.equal(meter.rate(60_400), 500);
  meter.add(398);
  assert.equal(meter.rate(62_000), 200);
});
