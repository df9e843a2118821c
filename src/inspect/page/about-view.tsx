/** The settings, results and machine of a run, and its exports. */

import { Figure } from "./charts/figure.js";
import { runPath } from "./server.js";
import { formatDuration, formatName, formatNumber, formatTime } from "./tables/format.js";
import type { RunDetail, RunStatus } from "./wire.js";

export interface AboutViewProps {
  readonly detail: RunDetail;
  readonly status: RunStatus | undefined;
}

export function AboutView({ detail, status }: AboutViewProps) {
  const { run, results } = detail;
  const figures = Object.entries(results ?? {}).filter(([, value]) => typeof value !== "object");
  return (
    <div class="grid">
      <div class="stack">
        <Figure
          title="Settings"
          caption="From run.json."
          empty={run ? undefined : "No settings: run.json is missing or can't be read."}
        >
          <Facts
            facts={Object.entries(run?.settings ?? {}).map(([name, value]) => [
              formatName(name),
              formatValue(value),
            ])}
          />
        </Figure>
        <Figure
          title="Results"
          caption="From results.json; shares are from 0 to 1."
          empty={figures.length > 0 ? undefined : "No results yet: they are written when the run finishes."}
        >
          <Facts
            facts={figures.map(([name, value]) => [
              formatName(name),
              typeof value === "number" ? formatNumber(value, 6) : formatValue(value),
            ])}
          />
        </Figure>
      </div>
      <div class="stack">
        <Figure
          title="Machine and times"
          caption="Host, device and times of the run."
          empty={
            run || status ? undefined : "No data: run.json and status.json are missing or can't be read."
          }
        >
          <Facts facts={machineFacts(detail, status)} />
        </Figure>
      </div>
      <Figure title="Exports" isWide caption="Files for other tools, generated on request.">
        <Exports detail={detail} />
      </Figure>
      <Figure title="The run's folder" caption="The contents of each file." isWide>
        <Facts facts={files} />
      </Figure>
    </div>
  );
}

function Facts({ facts }: { readonly facts: readonly (readonly [string, string])[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function machineFacts({ run }: RunDetail, status: RunStatus | undefined): [string, string][] {
  const started = run ? Date.parse(run.started) : Number.NaN;
  const updated = status ? Date.parse(status.updated) : Number.NaN;
  const facts: [string, string | undefined][] = [
    ["device", run?.device],
    ["host", run?.host],
    ["platform", run?.platform],
    ["holdfast", run?.holdfast],
    ["node", run?.node],
    ["started", run ? formatTime(run.started) : undefined],
    ["last heartbeat", status && formatTime(status.updated)],
    ["total time", formatDuration((updated - started) / 1000)],
    ["state", status?.state],
    ["reason", status?.reason],
    ["exit code", status?.exitCode === undefined ? undefined : String(status.exitCode)],
  ];
  return facts.flatMap(([name, value]): [string, string][] => (value === undefined ? [] : [[name, value]]));
}

function formatValue(value: unknown): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function Exports({ detail: { name, plans } }: { readonly detail: RunDetail }) {
  const link = (file: string): string => runPath(name, `/export/${file}`);
  return (
    <ul class="exports">
      <li>
        <a href={link("trace.json")} download>
          Trace
        </a>
        phases, kernels and copies over time; opens in ui.perfetto.dev and chrome://tracing
      </li>
      {plans.map((plan) => (
        <li key={plan.index}>
          <a href={link(`memory-${plan.index}.pickle`)} download>
            {plans.length > 1 ? `Memory snapshot ${plan.index + 1}` : "Memory snapshot"}
          </a>
          of “{plan.name}”, {plan.inputs}; opens in PyTorch’s memory viewer
        </li>
      ))}
      <li>
        <a href={link("steps.csv")} download>
          Steps
        </a>
        every step, unshortened, as CSV
      </li>
      <li>
        <a href={link("metrics.csv")} download>
          Metrics
        </a>
        every epoch and test, as CSV
      </li>
    </ul>
  );
}

const files: readonly (readonly [string, string])[] = [
  ["run.json", "the settings, the versions of Holdfast and Node, the device"],
  ["status.json", "the state, the step, the heartbeat, the reason why it ended"],
  ["metrics.jsonl", "one line per epoch and test"],
  ["results.json", "all results: per fold, per scale, confusion matrices"],
  ["steps.bin", "loss, learning rate and times of every step, in binary"],
  ["plans.jsonl", "one line per plan of a compiled step"],
  ["memory.jsonl", "samples of memory use"],
  ["incidents.jsonl", "stalls, failures and other incidents"],
  ["recorder.log", "the phases, from the device's recorder"],
  ["checkpoints/", "the last three: weights, moments, random state, position"],
];
