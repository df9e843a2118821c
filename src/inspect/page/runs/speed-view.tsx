/** Speed: samples per second, host and device time of a step, ranks, kernels, calls, and the compiler's passes. */

import { useCallback, useMemo } from "preact/hooks";
import type { ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName } from "../charts/figure.js";
import { lookOf, type SeriesLook } from "../charts/palette.js";
import { callColumns, kernelColumns, saveCalls, saveKernels } from "../plan/call-tables.js";
import { kernelRows, sumTimes } from "../plan/kernels.js";
import { PassStepper } from "../plan/pass-stepper.js";
import { PlanPicker, usePlan } from "../plan/plan-picker.js";
import { formatDuration, formatNumber } from "../tables/format.js";
import { SortTable } from "../tables/sort-table.js";
import type { PlanRecord, RunDetail, StepTable } from "../wire.js";
import { languageOf } from "./language.js";
import { epochsOf } from "./predictions.js";
import { RanksView } from "./ranks-view.js";
import { StepChart } from "./step-chart.js";
import type { StepTables } from "./step-tables.js";
import { byEpoch, epochStepMs, hostByEpoch, stepTimes } from "./steps.js";

export interface SpeedViewProps {
  readonly detail: RunDetail;
  readonly others: ReadonlyMap<string, RunDetail>;
  readonly tables: StepTables;
  readonly looks: ReadonlyMap<string, SeriesLook>;
  readonly planVersion: number;
  readonly rankVersion: number;
}

const untimed =
  "No kernel times: train with --profile to measure each call after each fold. The table shows the bytes of each kernel.";

export function SpeedView(props: SpeedViewProps) {
  const { detail, others, tables, looks, planVersion, rankVersion } = props;
  const chosen = usePlan(detail, planVersion);
  const calls = chosen.plan?.calls ?? [];
  const totals = useMemo(() => sumTimes(calls), [calls]);
  const kernels = useMemo(() => kernelRows(calls), [calls]);
  const numbered = useMemo(() => calls.map((call, index) => ({ ...call, index })), [calls]);
  const paceLines = useCallback(
    (table: StepTable, { colour, dash }: SeriesLook, run: string, isAlone: boolean): ChartSeries[] => {
      const metrics = run === detail.name ? detail.metrics : (others.get(run)?.metrics ?? []);
      const scale = tokensOf(metrics) ?? 1;
      const figures = epochsOf(metrics).map(({ fold, epoch, samplesPerSecond }) => ({
        ...{ fold, epoch },
        value: samplesPerSecond === undefined ? undefined : samplesPerSecond * scale,
      }));
      const each = table.columns.samplesPerSecond.map((rate) => (rate === null ? null : rate * scale));
      const mean = byEpoch(table, figures);
      const name = isAlone ? "" : `${run}, `;
      const steps = { label: isAlone ? "each step" : run, colour, dash, values: each };
      if (mean.every((value) => value === null)) return [steps];
      return [
        { ...steps, isFaint: true },
        { label: `${name}epoch mean`, colour, dash, values: mean },
      ];
    },
    [detail, others],
  );
  const timeLines = useCallback(
    (table: StepTable, _: SeriesLook, run: string): ChartSeries[] => {
      if (run !== detail.name) return [];
      const ended = byEpoch(table, epochStepMs(epochsOf(detail.metrics)));
      const isKnown = ended.some((value) => value !== null);
      const { host, whole } = isKnown ? { host: hostByEpoch(table), whole: ended } : stepTimes(table);
      return [
        { label: "step", colour: lookOf(1).colour, values: whole, isFilled: true },
        { label: "host", colour: lookOf(0).colour, values: host, isFilled: true },
      ];
    },
    [detail.name, detail.metrics],
  );
  return (
    <div class="grid">
      <StepChart
        title={tokensOf(detail.metrics) === undefined ? "Samples per second" : "Tokens per second"}
        caption="Faint: from step to step. Strong: the mean of each completed epoch."
        hint="The host runs ahead of the device and waits for it at times, so a single step may look faster or slower than it is. Use the epoch's mean. If the speed falls slowly over the whole run, check the memory."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={paceLines}
        format={formatNumber}
        startsAtZero
      />
      <StepChart
        title="Step time"
        caption="The time per step in each completed epoch: host time below, additional device time above."
        hint="Host time is the epoch's median duration of a step's call. If it fills the whole, the device waits for the host; if it is thin, the device is the limit, as it should be. Before the first epoch is complete, the times between steps are shown: the host runs ahead, so a step that waits for earlier ones looks long."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={timeLines}
        format={formatMs}
        startsAtZero
        clipsOutliers
        spansGaps
        noData="No step times yet: an epoch needs two steps."
      />
      {detail.ranks > 0 ? <RanksView detail={detail} version={rankVersion} /> : null}
      <div class="wide plan-line">
        <PlanPicker detail={detail} chosen={chosen} />
        {chosen.plan ? <p class="quiet">{modeOf(chosen.plan)}</p> : null}
      </div>
      <Figure
        title="Kernels"
        caption={
          totals
            ? `The time and bytes of each kernel in a step. Total ${formatUs(totals.us)}, of which copies take ${formatUs(totals.copiesUs)}.`
            : chosen.plan
              ? untimed
              : "The time and bytes of each kernel in a step."
        }
        hint="Time is the contribution of the kernel's calls to the step, in microseconds. Bytes are read and written. Bytes per time is the bandwidth; if it is near the GPU's limit, the kernel can't be faster."
        isWide
        empty={chosen.missing}
        actions={[{ label: "CSV", title: "Save this table", run: () => saveKernels(detail.name, kernels) }]}
      >
        <SortTable
          label="Kernels"
          rows={kernels}
          columns={kernelColumns}
          sortBy={totals ? "µs" : "bytes"}
          pageSize={15}
        />
      </Figure>
      <Figure
        title="Calls"
        caption="Every call of a step, in launch order."
        hint="Stream 0 is the main stream; calls of other streams run concurrently. The phase is forward, backward or update."
        isWide
        empty={chosen.missing}
        actions={[{ label: "CSV", title: "Save this table", run: () => saveCalls(detail.name, calls) }]}
      >
        <SortTable label="Calls" rows={numbered} columns={callColumns} pageSize={15} />
      </Figure>
      <Figure
        title="Compiler passes"
        caption="The calls before and after each pass, with removed and added ones marked."
        hint="The trace is the step as written. Use the arrow keys to move between passes."
        isWide
        empty={chosen.missing}
      >
        {chosen.plan ? <PassStepper stages={chosen.plan.stages} /> : null}
      </Figure>
      <Figure
        title="explain()"
        caption="The output of step.explain() for this plan."
        isWide
        empty={chosen.missing}
        actions={[
          {
            label: "Text",
            title: "Save this text",
            run: () => download(fileName(detail.name, "explain.txt"), chosen.plan?.text ?? "", "text/plain"),
          },
        ]}
      >
        <pre class="text">{chosen.plan?.text}</pre>
      </Figure>
    </div>
  );
}

/** Tokens of a sample, if samples are texts. */
function tokensOf(metrics: RunDetail["metrics"]): number | undefined {
  return languageOf(metrics)?.tokensPerSample;
}

function modeOf({ mode, reason }: PlanRecord): string {
  if (mode === undefined) return "Has not run yet.";
  if (mode === "graph") return "Runs as one graph launch.";
  return `Runs call by call${reason ? `: ${reason}` : "."}`;
}

function formatMs(value: number | null | undefined): string {
  return formatDuration(typeof value === "number" ? value / 1000 : value);
}

function formatUs(us: number): string {
  return formatMs(us / 1000);
}
