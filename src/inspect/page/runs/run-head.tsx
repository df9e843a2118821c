/** The run at a glance: progress, speed, loss and memory. */

import {
  formatBytes,
  formatCount,
  formatDuration,
  formatNumber,
  formatPercent,
  formatTime,
} from "../tables/format.js";
import type { MemorySample, RunDetail, RunStatus, StepTable } from "../wire.js";
import { languageOf } from "./language.js";
import { epochsOf } from "./predictions.js";
import { lastFinite, secondsLeft } from "./steps.js";

export interface RunHeadProps {
  readonly detail: RunDetail;
  readonly status: RunStatus | undefined;
  readonly isLive: boolean;
  readonly table: StepTable | undefined;
  readonly memory: MemorySample | undefined;
}

export function RunHead({ detail, status, isLive, table, memory }: RunHeadProps) {
  const step = status?.step ?? lastFinite(table?.columns.step);
  const of = status?.of;
  const share = of && step !== undefined ? Math.min(1, step / of) : undefined;
  const isRunning = status?.state === "running";
  const left = isRunning && table ? secondsLeft(table, of) : undefined;
  const took =
    status && detail.run ? (Date.parse(status.updated) - Date.parse(detail.run.started)) / 1000 : undefined;
  const lastEpoch = epochsOf(detail.metrics).at(-1)?.samplesPerSecond;
  // The trainer's figure: times of single steps say little, because the host runs ahead of the device.
  const rate = status?.figures?.samplesPerSecond ?? lastEpoch;
  const loss = lastFinite(table?.columns.loss);
  const language = languageOf(detail.metrics);
  const { tokensPerSample } = language ?? {};
  const tokenRate =
    status?.figures?.tokensPerSecond ??
    (rate !== undefined && tokensPerSample ? rate * tokensPerSample : undefined);
  const evaluation = language?.evaluations.at(-1);
  return (
    <header class="run-head">
      <div class="title">
        <h1>{detail.name}</h1>
        <span class={`state ${isLive ? "live" : (status?.state ?? "unknown")}`}>
          {isRunning && !isLive ? "silent" : (status?.state ?? "unknown")}
        </span>
        <span class="quiet">{detail.run?.device ?? ""}</span>
      </div>
      <div
        class="progress"
        role="progressbar"
        aria-label="Completed steps"
        aria-valuemin={0}
        aria-valuemax={of ?? 1}
        aria-valuenow={step ?? 0}
      >
        <span style={{ width: `${100 * (share ?? 0)}%` }} />
      </div>
      <dl class="tiles">
        <Tile
          name="Step"
          value={formatCount(step)}
          more={of ? `of ${formatCount(of)}, ${formatPercent(share, 0)}` : ""}
        />
        {language ? (
          <Tile
            name="Tokens per second"
            value={formatNumber(tokenRate, 4)}
            more={tokenRate === undefined ? "" : "while training"}
          />
        ) : (
          <Tile
            name="Samples per second"
            value={formatNumber(rate, 4)}
            more={rate === undefined ? "" : "while training"}
          />
        )}
        {isRunning ? (
          <Tile
            name="Time left"
            value={formatDuration(left)}
            more={left === undefined ? "not known yet" : "at this pace"}
          />
        ) : (
          <Tile
            name="Took"
            value={formatDuration(took)}
            more={status ? `until ${formatTime(status.updated).slice(0, 16)}` : ""}
          />
        )}
        <Tile
          name={isRunning ? "Loss now" : "Last loss"}
          value={formatNumber(loss)}
          more={loss === undefined ? "" : "training loss of one step"}
        />
        {evaluation ? (
          <Tile
            name="Perplexity"
            value={formatNumber(evaluation.perplexity)}
            more={`evaluated at step ${formatCount(evaluation.step)}`}
          />
        ) : null}
        <Tile
          name="Memory used"
          value={formatBytes(memory?.used)}
          more={memory ? `of ${formatBytes(memory.limit)}` : "not sampled yet"}
        />
      </dl>
      {status?.reason ? <p class="reason">{status.reason}</p> : null}
    </header>
  );
}

function Tile({
  name,
  value,
  more,
}: {
  readonly name: string;
  readonly value: string;
  readonly more: string;
}) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <b>{value}</b> <small>{more}</small>
      </dd>
    </div>
  );
}
