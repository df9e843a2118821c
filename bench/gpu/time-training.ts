/** The time, the memory and the kernels of a compiled training step without inputs, for the benchmarks of models. */

import type { CompiledStep, Device, Tensor } from "holdfast";

type Step = CompiledStep<[], { readonly loss: Tensor }>;

export interface TrainingTimes {
  readonly firstSeconds: number;
  readonly medianMs: number;
  readonly bestMs: number;
  readonly peakMiB: number;
  readonly firstLoss: number;
  readonly lastLoss: number;
}

interface TimingOptions {
  /** How long the timed steps take in all. */
  readonly seconds: number;
  /** Into how many groups they are cut, of which the median counts. */
  readonly groups: number;
  /** The steps before them end after so many, and after so many milliseconds. Choosing a schedule takes a few dozen. */
  readonly warmUp: { readonly steps: number; readonly ms: number };
}

export function timeTraining(
  { runtime }: Device,
  step: Step,
  { seconds, groups, warmUp }: TimingOptions,
): TrainingTimes {
  let peak = 0;
  const observe = (): void => {
    peak = Math.max(peak, runtime.budget.used - runtime.budget.usedBy("staging"));
  };
  const started = performance.now();
  const firstLoss = step().loss.item();
  const firstSeconds = (performance.now() - started) / 1000;
  observe();
  const timed = (count: number): number => {
    const from = performance.now();
    for (let index = 0; index < count; index++) step();
    runtime.synchronize();
    return (performance.now() - from) / count;
  };
  let one = timed(1);
  const endMs = performance.now() + warmUp.ms;
  for (let index = 0; index < warmUp.steps || performance.now() < endMs; index++) one = timed(1);
  observe();
  const each = Math.max(1, Math.floor((1000 * seconds) / one / groups));
  const times = Array.from({ length: groups }, () => timed(each)).sort((a, b) => a - b);
  const lastLoss = step().loss.item();
  observe();
  const [bestMs = Number.NaN] = times;
  const medianMs = times[groups >> 1] ?? Number.NaN;
  return { firstSeconds, medianMs, bestMs, peakMiB: peak / 2 ** 20, firstLoss, lastLoss };
}

/** The kernels of a step that take most of its time, by what they compute; at most `count`. */
export function printKernels(step: Step, count: number): void {
  const [plan] = step.report({ times: true });
  const byKernel = new Map<string, { us: number; count: number }>();
  for (const { op, kernel, us = 0 } of plan?.calls ?? []) {
    const key = `${kernel} <- ${op.slice(0, 80)}`;
    const known = byKernel.get(key) ?? { us: 0, count: 0 };
    byKernel.set(key, { us: known.us + us, count: known.count + 1 });
  }
  const sorted = [...byKernel].sort(([, a], [, b]) => b.us - a.us);
  console.log(`${plan?.calls?.length ?? 0} calls, ${plan?.mode}`);
  for (const [key, { us, count: calls }] of sorted.slice(0, count))
    console.log(`${us.toFixed(1).padStart(10)} µs  ×${calls}  ${key}`);
}
