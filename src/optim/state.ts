/** The saved state of an optimizer: tensors by name, so that a checkpoint stores them like a model's. */

import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import type { LoadableState, StateDict, StoredElements } from "../nn/index.js";
import { type Device, misfitOf, numberOf, Tensor, writeElements } from "../tensor/index.js";
import type { ParameterGroup } from "./parameter-group.js";
import { type ParameterSlot, withoutPadding } from "./parameter-slot.js";
import { momentDtype, requireDecayFits } from "./update-rule.js";

const settingNames = ["lr", "weightDecay"] as const;

export function collectState(groups: readonly ParameterGroup[]): Record<string, Tensor> {
  const device = findDevice(groups);
  if (!device) return {};
  const entries = groups.flatMap((group, index) => {
    const settings = settingNames.map((setting) => {
      const name = settingName(index, setting);
      return [name, device.fromStorage(group.settingStorage(setting), [], "f64", name)] as const;
    });
    const slots = group.slots.toSorted((a, b) => a.index - b.index);
    return [...settings, ...slots.flatMap((slot) => slotEntries(device, group, slot))];
  });
  return Object.fromEntries(entries);
}

function slotEntries(device: Device, group: ParameterGroup, slot: ParameterSlot): [string, Tensor][] {
  const { t, carried = [] } = group.stepCount(slot) ?? {};
  const cells = [t, ...carried].map((cell, index): [string, Tensor] => {
    const name = countNames(group, slot)[index] ?? "";
    return [name, device.fromStorage(cell, [], "f64", name)];
  });
  const moments = slot.moments.map((moment, kind): [string, Tensor] => {
    const name = momentName(group, slot, kind);
    const { storage, shape, dtype } = withoutPadding(device.runtime, moment);
    return [name, device.fromStorage(storage, shape, dtype, name)];
  });
  return [...cells, ...moments];
}

/** The dtypes and shapes of a state that is not split over ranks. */
export function describeWhole(
  groups: readonly ParameterGroup[],
): Record<string, Pick<Tensor, "dtype" | "shape">> {
  const number = { dtype: "f64", shape: [] } as const;
  const entries = groups.flatMap((group, index) => {
    const slots = group.slots.toSorted((a, b) => a.index - b.index);
    return [
      ...settingNames.map((setting) => [settingName(index, setting), number] as const),
      ...slots.flatMap((slot) => [
        ...countNames(group, slot).map((name) => [name, number] as const),
        ...wholeMoments(group, slot),
      ]),
    ];
  });
  return Object.fromEntries(entries);
}

function wholeMoments(
  { rule }: ParameterGroup,
  { tensor, index }: ParameterSlot,
): (readonly [string, Pick<Tensor, "dtype" | "shape">])[] {
  if (tensor.numel === 0) return [];
  const type = { dtype: momentDtype(tensor.dtype), shape: tensor.shape };
  return rule.moments.map((kind) => [`${index}.${kind}`, type]);
}

/** The name of a moment; if the optimizer is split over ranks, with the elements of this rank. */
function momentName({ rule }: ParameterGroup, { index, own }: ParameterSlot, kind: number): string {
  return `${index}.${rule.moments[kind]}${own ? `[${own.start}:${own.end}]` : ""}`;
}

/** A state in which each whole moment of an optimizer that is split over ranks is replaced by this rank's elements. */
function ownPartOf(groups: readonly ParameterGroup[], state: LoadableState): LoadableState {
  const parts = new Map(Object.entries(state));
  for (const group of groups)
    for (const slot of group.slots) {
      if (!slot.own) continue;
      const { start, end } = slot.own;
      for (const [name, { shape }] of wholeMoments(group, slot)) {
        const whole = parts.get(name);
        // One that does not fit stays, and is rejected by its name.
        if (!whole || String(whole.shape) !== String(shape)) continue;
        parts.delete(name);
        if (end > start) parts.set(`${name}[${start}:${end}]`, elementsOf(whole, start, end));
      }
    }
  return Object.fromEntries(parts);
}

function elementsOf(value: Tensor | StoredElements, start: number, end: number): Tensor | StoredElements {
  if (value instanceof Tensor)
    return value
      .detach()
      .reshape([-1])
      .narrow(0, start, end - start);
  const { dtype, bytes } = value;
  const size = dtypes[dtype].bytes;
  return { dtype, shape: [end - start], bytes: bytes.subarray(start * size, end * size) };
}

export function loadState(owner: string, groups: readonly ParameterGroup[], given: LoadableState): void {
  const current = collectState(groups);
  const state = ownPartOf(groups, given);
  requireFitting(owner, current, state);
  const entries = new Map(Object.entries(state));
  const readScalar = (name: string): number => {
    const value = entries.get(name);
    return value ? numberOf(value) : 0;
  };
  // Read before anything is written: the state may be this optimizer's own memory.
  const settings = groups.map((_, index) => ({
    lr: readScalar(settingName(index, "lr")),
    weightDecay: readScalar(settingName(index, "weightDecay")),
  }));
  for (const [index, { rule }] of groups.entries())
    requireDecayFits(owner, rule, settings[index]?.weightDecay ?? 0);
  const counts = groups.map(
    (group) =>
      new Map(
        group.slots.map((slot) => {
          const [t = 0, ...carried] = countNames(group, slot).map(readScalar);
          return [slot, { t, carried }] as const;
        }),
      ),
  );
  for (const [index, group] of groups.entries()) {
    const { lr, weightDecay } = settings[index] ?? group;
    group.lr = lr;
    group.weightDecay = weightDecay;
    group.restoreCounts(counts[index] ?? new Map());
    for (const slot of group.slots) {
      for (const [kind, moment] of slot.moments.entries()) {
        const name = momentName(group, slot, kind);
        const [target, source] = [current[name], entries.get(name)];
        if (target && source && moment.storage) writeElements(target, source);
      }
    }
  }
}

function requireFitting(owner: string, current: StateDict, state: LoadableState): void {
  const missing = Object.keys(current).filter((name) => !Object.hasOwn(state, name));
  const unexpected = Object.keys(state).filter((name) => !Object.hasOwn(current, name));
  const misshapen = Object.entries(state).flatMap(([name, value]) => {
    const tensor = Object.hasOwn(current, name) ? current[name] : undefined;
    const misfit = tensor && misfitOf(tensor, value, "here");
    return misfit ? [`${name} ${misfit}`] : [];
  });
  const faults = [
    ...(missing.length > 0 ? [`missing in the state: ${missing.join(", ")}`] : []),
    ...(unexpected.length > 0 ? [`not in the optimizer: ${unexpected.join(", ")}`] : []),
    ...misshapen,
  ];
  if (faults.length === 0) return;
  throw new HoldfastError(
    "BAD_STATE",
    `The state does not fit ${owner}: ${faults.join("; ")}. Create the optimizer with the same parameters, in the same groups.`,
    { numbers: { missing: missing.length, unexpected: unexpected.length, misshapen: misshapen.length } },
  );
}

function findDevice(groups: readonly ParameterGroup[]): Device | undefined {
  return groups.find(({ slots }) => slots.length > 0)?.slots[0]?.tensor.device;
}

function settingName(group: number, setting: (typeof settingNames)[number]): string {
  return `groups.${group}.${setting}`;
}

/** The names of a slot's step count and of its carried numbers. */
function countNames({ rule }: ParameterGroup, { index }: ParameterSlot): readonly string[] {
  return ["step", ...(rule.carried ?? [])].map((name) => `${index}.${name}`);
}
