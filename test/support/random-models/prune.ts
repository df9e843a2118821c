/** Removes everything from a failing model program that the failure does not need. */

import type { ModelCall, ModelProgram, ModelStep } from "./program.js";

export function pruneModel(program: ModelProgram, fails: (program: ModelProgram) => boolean): ModelProgram {
  let left = program;
  for (let isSmaller = true; isSmaller; ) {
    isSmaller = false;
    for (const smaller of smallerOnes(left)) {
      if (!fails(smaller)) continue;
      left = smaller;
      isSmaller = true;
      break;
    }
  }
  return left;
}

/** Each lacks one thing, the largest things first. */
function* smallerOnes(program: ModelProgram): Generator<ModelProgram> {
  const { clip, schedule, ...rest } = program;
  for (const calls of smallerCalls(program.calls)) yield { ...program, calls };
  for (const steps of smallerSteps(program.steps)) yield { ...program, steps };
  if (schedule) yield { ...rest, ...(clip && { clip }) };
  if (clip) yield { ...rest, ...(schedule && { schedule }) };
  for (const result of program.results)
    yield { ...program, results: program.results.filter((name) => name !== result) };
  const { name, options, secondFrom } = program.optimizer;
  if (secondFrom !== undefined) yield { ...program, optimizer: { name, options } };
  if (name !== "SGD" || Object.keys(options).length > 1)
    yield { ...program, optimizer: { name: "SGD", options: { lr: 0.01 } } };
  for (const pass of program.without)
    yield { ...program, without: program.without.filter((name) => name !== pass) };
  if (program.dtype !== "f32") yield { ...program, dtype: "f32" };
  const used = JSON.stringify([program.steps, program.loss]);
  const inputs = program.inputs.filter(
    ({ name: input }, index) => index === 0 || used.includes(`"${input}"`),
  );
  if (inputs.length < program.inputs.length) yield { ...program, inputs };
}

function* smallerCalls(calls: readonly ModelCall[]): Generator<ModelCall[]> {
  for (const index of calls.keys()) {
    if (calls.length === 1) break;
    const later = (call: ModelCall): ModelCall => ({
      ...call,
      feeds: call.feeds
        .filter((feed) => feed.call !== index)
        .map((feed) => ({ ...feed, call: feed.call > index ? feed.call - 1 : feed.call })),
    });
    yield calls.toSpliced(index, 1).map(later);
  }
  for (const [index, call] of calls.entries()) {
    for (const at of call.events.keys())
      yield calls.with(index, { ...call, events: call.events.toSpliced(at, 1) });
    for (const at of call.feeds.keys())
      yield calls.with(index, { ...call, feeds: call.feeds.toSpliced(at, 1) });
    for (const at of call.keeps.keys())
      yield calls.with(index, { ...call, keeps: call.keeps.toSpliced(at, 1) });
    if (call.batch > 1) yield calls.with(index, { ...call, batch: 1 });
    if (call.step !== "train") yield calls.with(index, { ...call, step: "train" });
  }
}

function* smallerSteps(steps: readonly ModelStep[]): Generator<ModelStep[]> {
  for (const index of steps.keys()) yield steps.toSpliced(index, 1);
  for (const [index, step] of steps.entries()) {
    if (step.kind === "repeat") {
      if (step.count > 1) yield steps.with(index, { ...step, count: step.count - 1 });
      if (step.isResidual) yield steps.with(index, { ...step, isResidual: false });
      if (step.count === 1) yield steps.toSpliced(index, 1, ...step.steps);
    }
    if (step.kind === "repeat" || step.kind === "join")
      for (const inner of smallerSteps(step.steps)) yield steps.with(index, { ...step, steps: inner });
  }
}
