/** Is it learning: the loss and the learning rate by step, and how good the answers were. */

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { epochsOf, foldsOf } from "./answers.js";
import { AnswerFigures } from "./answers-view.js";
import { Chart, type ChartHandle, type ChartMark, type ChartSeries } from "../charts/chart.js";
import { toCsv } from "../tables/csv.js";
import { download, Figure, fileName, pictureAction } from "../charts/figure.js";
import { formatCount, formatNumber } from "../tables/format.js";
import { lookOf, type SeriesLook } from "../charts/palette.js";
import { smooth } from "../charts/smoothing.js";
import { StepChart } from "../charts/step-chart.js";
import type { StepTables } from "../tables/step-tables.js";
import { foldStarts } from "./steps.js";
import type { RunDetail, StepTable } from "../wire.js";

export interface LearningViewProps {
  readonly detail: RunDetail;
  readonly others: ReadonlyMap<string, RunDetail>;
  readonly tables: StepTables;
  readonly looks: ReadonlyMap<string, SeriesLook>;
}

export function LearningView({ detail, others, tables, looks }: LearningViewProps) {
  const [isLog, setLog] = useState(false);
  const [weight, setWeight] = useState(0);
  const unknown = (tables.whole.get(detail.name)?.columns.notFinite ?? []).reduce(
    (sum: number, count) => sum + (count ?? 0),
    0,
  );
  const marks = useMarks(detail, tables.whole.get(detail.name));
  const lossLines = useCallback(
    ({ columns }: StepTable, { colour, dash }: SeriesLook, run: string, isAlone: boolean): ChartSeries[] => {
      const label = isAlone ? "loss" : run;
      const band = run === detail.name ? { low: columns.lossMin, high: columns.lossMax } : undefined;
      const line = { label, colour, dash, values: columns.loss, ...(band && { band }) };
      if (weight === 0) return [line];
      const faint = { ...line, label: `${label} as it is`, isFaint: true };
      return [faint, { label, colour, dash, values: smooth(columns.loss, weight, columns.fold) }];
    },
    [weight, detail.name],
  );
  const rateLines = useCallback(
    ({ columns }: StepTable, { colour, dash }: SeriesLook, run: string, isAlone: boolean): ChartSeries[] => [
      { label: isAlone ? "learning rate" : run, colour, dash, values: columns.lr },
    ],
    [],
  );
  return (
    <div class="grid">
      <StepChart
        title="Loss by step"
        caption="Training loss of each step. The band reaches from the least to the greatest loss of the steps behind each point."
        hint="The lower, the better the model fits what it is trained on. Where there are more steps than points, the line is their mean and the band keeps every outlier in sight. Drag or turn the wheel to zoom, double-click to see everything; smoothing mixes each point with those before it."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={lossLines}
        format={formatNumber}
        marks={marks}
        isLog={isLog}
        isWide
        height={300}
        lacking="No loss is known of any step: this run did not tell it."
        onDraw={() => performance.mark("inspector:loss-drawn")}
        controls={
          <>
            <label>
              <input
                type="checkbox"
                checked={isLog}
                onChange={(event) => setLog(event.currentTarget.checked)}
              />
              Log scale
            </label>
            <label>
              Smoothing
              <input
                type="range"
                min="0"
                max="0.99"
                step="0.01"
                value={weight}
                onInput={(event) => setWeight(Number(event.currentTarget.value))}
              />
              <output>{weight === 0 ? "off" : weight.toFixed(2)}</output>
            </label>
            {unknown > 0 ? (
              <span class="quiet">{formatCount(unknown)} steps have no finite loss; they are left out</span>
            ) : null}
          </>
        }
      />
      <StepChart
        title="Learning rate"
        caption="What each step's update is scaled by; it has no unit."
        hint="It follows the schedule. A loss that jumps where the rate rises asks for a lower one."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={rateLines}
        format={formatNumber}
        startsAtZero
      />
      <EpochLoss detail={detail} />
      <AnswerFigures detail={detail} others={others} looks={looks} />
    </div>
  );
}

/** Where folds begin, and where something went wrong. */
function useMarks({ incidents }: RunDetail, table: StepTable | undefined): readonly ChartMark[] {
  return useMemo(() => {
    const starts = table ? foldStarts(table) : [];
    const folds = starts.length > 1 ? starts : [];
    return [
      ...folds.map(({ step, fold }) => ({ at: step, label: `fold ${fold + 1}` })),
      ...incidents.map(({ step, kind }) => ({ at: step, label: kind, isIncident: true })),
    ].sort((a, b) => a.at - b.at);
  }, [incidents, table]);
}

/** The mean loss of each epoch, a line a fold, and what the test at the fold's end came to. */
function EpochLoss({ detail }: { readonly detail: RunDetail }) {
  const chart = useRef<ChartHandle>(null);
  const { x, series } = useMemo(() => epochLines(detail), [detail.metrics, detail.results]);
  const title = "Loss by epoch";
  const saveCsv = (): void => {
    const rows = x.map((epoch, place) => [epoch, ...series.map(({ values }) => values[place])]);
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(["epoch", ...series.map(({ label }) => label)], rows),
    );
  };
  return (
    <Figure
      title={title}
      caption="The mean training loss of each epoch, by fold; dots are the loss of the fold's test."
      hint="A test loss far above the training loss says that the model has learned its samples by heart."
      empty={
        x.length === 0
          ? "No epoch has ended yet: its mean loss is written to metrics.jsonl when it does."
          : undefined
      }
      actions={[
        pictureAction(chart, detail.name, title),
        { label: "CSV", title: "Save these figures", run: saveCsv },
      ]}
    >
      <Chart title={title} x={x} xLabel="epoch" series={series} format={formatNumber} handle={chart} />
    </Figure>
  );
}

function epochLines({ metrics, results }: RunDetail): { x: number[]; series: ChartSeries[] } {
  const epochs = epochsOf(metrics);
  const x = [...new Set(epochs.map(({ epoch }) => epoch + 1))].sort((a, b) => a - b);
  const folds = [...new Set(epochs.map(({ fold }) => fold))].sort((a, b) => a - b);
  const tests = foldsOf(metrics, results);
  const series = folds.flatMap((fold, place): ChartSeries[] => {
    const own = new Map(
      epochs.filter((point) => point.fold === fold).map(({ epoch, loss }) => [epoch + 1, loss]),
    );
    const look = lookOf(place);
    const test = tests.find((one) => one.fold === fold)?.loss;
    const last = Math.max(...own.keys());
    const line = { ...look, label: `fold ${fold + 1}`, values: x.map((epoch) => own.get(epoch) ?? null) };
    if (test === undefined) return [line];
    const dots = x.map((epoch) => (epoch === last ? test : null));
    return [line, { colour: look.colour, label: `fold ${fold + 1}, test`, values: dots, isDots: true }];
  });
  return { x, series };
}
