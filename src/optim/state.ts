/** What an optimizer saves and takes over: tensors by name, so that a checkpoint holds them like a model's. */

import { HoldfastError } from "../errors/index.js";
import type { LoadableState, StateDict } from "../nn/index.js";
import { type Device, misfitOf, numberOf, type Tensor, writeElements } from "../tensor/index.js";
import type { ParameterGroup } from "./parameter-group.js";
import { type Member, withoutPadding } from "./parameter-slot.js";

const settingNames = ["lr", "weightDecay"] as const;

export function stateOf(groups: readonly ParameterGroup[]): Record<string, Tensor> {
  const device = deviceOf(groups);
  if (!device) return {};
  const entries = groups.flatMap((group, place) => {
    const settings = settingNames.map((setting) => {
      const name = settingName(place, setting);
      return [name, device.fromStorage(group.cellOf(setting), [], "f64", name)] as const;
    });
    const members = group.members.toSorted((a, b) => a.index - b.index);
    return [...settings, ...members.flatMap((member) => memberEntries(device, group, member))];
  });
  return Object.fromEntries(entries);
}

function memberEntries(device: Device, group: ParameterGroup, member: Member): [string, Tensor][] {
  const name = stepName(member);
  const step: [string, Tensor] = [name, device.fromStorage(group.countOf(member), [], "f64", name)];
  const moments = member.moments.map((moment, kind): [string, Tensor] => {
    const own = `${member.index}.${group.rule.moments[kind]}`;
    const { storage, shape, dtype } = withoutPadding(device.runtime, moment);
    return [own, device.fromStorage(storage, shape, dtype, own)];
  });
  return [step, ...moments];
}

export function loadState(owner: string, groups: readonly ParameterGroup[], state: LoadableState): void {
  const own = stateOf(groups);
  requireFitting(owner, own, state);
  const given = new Map(Object.entries(state));
  const scalarOf = (name: string): number => {
    const value = given.get(name);
    return value ? numberOf(value) : 0;
  };
  // Read before anything is written: the state may be this optimizer's own memory.
  const settings = groups.map((_, place) => ({
    lr: scalarOf(settingName(place, "lr")),
    weightDecay: scalarOf(settingName(place, "weightDecay")),
  }));
  const counts = groups.map(
    ({ members }) => new Map(members.map((member) => [member, scalarOf(stepName(member))])),
  );
  for (const [place, group] of groups.entries()) {
    const { lr, weightDecay } = settings[place] ?? group;
    group.lr = lr;
    group.weightDecay = weightDecay;
    group.restoreCounts(counts[place] ?? new Map());
    for (const member of group.members) {
      for (const [kind, moment] of member.moments.entries()) {
        const name = `${member.index}.${group.rule.moments[kind]}`;
        const [target, source] = [own[name], given.get(name)];
        if (target && source && moment.storage) writeElements(target, source);
      }
    }
  }
}

function requireFitting(owner: string, own: StateDict, state: LoadableState): void {
  const missing = Object.keys(own).filter((name) => !Object.hasOwn(state, name));
  const unexpected = Object.keys(state).filter((name) => !Object.hasOwn(own, name));
  const misshapen = Object.entries(state).flatMap(([name, value]) => {
    const there = Object.hasOwn(own, name) ? own[name] : undefined;
    const misfit = there && misfitOf(there, value, "here");
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
    `The state does not fit ${owner}: ${faults.join("; ")}. Give the optimizer the same parameters, in the same groups.`,
    { numbers: { missing: missing.length, unexpected: unexpected.length, misshapen: misshapen.length } },
  );
}

function deviceOf(groups: readonly ParameterGroup[]): Device | undefined {
  return groups.find(({ members }) => members.length > 0)?.members[0]?.tensor.device;
}

function settingName(group: number, setting: (typeof settingNames)[number]): string {
  return `groups.${group}.${setting}`;
}

function stepName({ index }: Member): string {
  return `${index}.step`;
}
