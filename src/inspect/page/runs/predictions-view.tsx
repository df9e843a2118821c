/** The quality of predictions: accuracy by epoch, fold and scale, and the confusion matrix. */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Bar, ShareBars } from "../charts/bars.js";
import { Chart } from "../charts/chart.js";
import type { ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName } from "../charts/figure.js";
import { lookOf, type SeriesLook } from "../charts/palette.js";
import { toCsv } from "../tables/csv.js";
import { formatCount, formatPercent } from "../tables/format.js";
import type { RunDetail } from "../wire.js";
import { epochsOf, type FoldPredictions, foldsOf, meanByScale, sumConfusion } from "./predictions.js";

export interface PredictionFiguresProps {
  readonly detail: RunDetail;
  readonly others: ReadonlyMap<string, RunDetail>;
  readonly looks: ReadonlyMap<string, SeriesLook>;
}

export function PredictionFigures({ detail, others, looks }: PredictionFiguresProps) {
  const [chosen, setChosen] = useState<number | undefined>(undefined);
  const folds = useMemo(() => foldsOf(detail.metrics, detail.results), [detail.metrics, detail.results]);
  const selectedFolds = chosen === undefined ? folds : folds.filter(({ fold }) => fold === chosen);
  const picker =
    folds.length > 1 ? (
      <label>
        Of
        <select
          value={chosen ?? "all"}
          onChange={({ currentTarget: { value } }) => setChosen(value === "all" ? undefined : Number(value))}
        >
          <option value="all">all folds</option>
          {folds.map(({ fold }) => (
            <option key={fold} value={fold}>
              fold {fold + 1}
            </option>
          ))}
        </select>
      </label>
    ) : null;
  return (
    <>
      <div class="stack">
        <AccuracyByFold detail={detail} others={others} looks={looks} />
        <AccuracyByEpoch detail={detail} />
        <Confusion detail={detail} folds={selectedFolds} picker={picker} />
      </div>
      <div class="stack">
        <AccuracyByScale
          detail={detail}
          others={others}
          looks={looks}
          folds={selectedFolds}
          picker={picker}
          fold={chosen}
        />
      </div>
    </>
  );
}

function AccuracyByFold({ detail, others, looks }: PredictionFiguresProps) {
  const runs = [detail, ...others.values()];
  const bars = runs.flatMap(({ name, metrics, results }): Bar[] =>
    foldsOf(metrics, results).map(({ fold, accuracy, majority }) => ({
      label: others.size === 0 ? `fold ${fold + 1}` : `${name}, fold ${fold + 1}`,
      share: accuracy,
      baseline: majority,
      colour: looks.get(name)?.colour ?? lookOf(0).colour,
    })),
  );
  const title = "Accuracy by fold";
  const saveCsv = (): void =>
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(
        ["fold", "accuracy", "majority"],
        bars.map(({ label, share, baseline }) => [label, share, baseline]),
      ),
    );
  return (
    <Figure
      title={title}
      caption="The accuracy of each fold's test. The line in the bar is the accuracy of always predicting the most frequent class."
      hint="Only the part to the right of the line was learned. Each fold is tested on the time after its training samples, which the model has not seen."
      empty={bars.length === 0 ? "No test yet: each fold is tested after its last epoch." : undefined}
      actions={[{ label: "CSV", title: "Save these figures", run: saveCsv }]}
    >
      <ShareBars bars={bars} />
    </Figure>
  );
}

/** One line per fold, for jobs that test after every epoch; otherwise the figure is omitted. */
function AccuracyByEpoch({ detail }: { readonly detail: RunDetail }) {
  const { x, series } = useMemo(() => accuracyLines(detail), [detail.metrics, detail.results]);
  if (series.length === 0) return null;
  return (
    <Figure
      title="Accuracy by epoch"
      caption="The accuracy after each epoch, by fold; dashed lines are the share of the most frequent class."
      hint="If it stops rising while the training loss still falls, the model overfits."
    >
      <Chart
        title="Accuracy by epoch"
        x={x}
        xLabel="epoch"
        series={series}
        format={(value) => formatPercent(value)}
      />
    </Figure>
  );
}

function accuracyLines({ metrics, results }: RunDetail): { x: number[]; series: ChartSeries[] } {
  const points = epochsOf(metrics).filter(({ accuracy }) => accuracy !== undefined);
  const x = [...new Set(points.map(({ epoch }) => epoch + 1))].sort((a, b) => a - b);
  const tests = foldsOf(metrics, results);
  const folds = [...new Set(points.map(({ fold }) => fold))].sort((a, b) => a - b);
  const series = folds.flatMap((fold, index): ChartSeries[] => {
    const byEpoch = new Map(
      points.filter((point) => point.fold === fold).map(({ epoch, accuracy }) => [epoch + 1, accuracy]),
    );
    const look = lookOf(index);
    const majority = tests.find((test) => test.fold === fold)?.majority;
    const line = { ...look, label: `fold ${fold + 1}`, values: x.map((epoch) => byEpoch.get(epoch) ?? null) };
    if (majority === undefined) return [line];
    return [
      line,
      {
        colour: look.colour,
        dash: [2, 4],
        label: `fold ${fold + 1}, most frequent class`,
        values: x.map(() => majority),
      },
    ];
  });
  return { x, series };
}

interface ByScaleProps extends PredictionFiguresProps {
  readonly folds: readonly FoldPredictions[];
  readonly fold: number | undefined;
  readonly picker: ComponentChildren;
}

function AccuracyByScale({ detail, others, looks, folds, fold, picker }: ByScaleProps) {
  const runs = [
    { name: detail.name, folds },
    ...[...others.values()].map(({ name, metrics, results }) => ({
      name,
      folds: foldsOf(metrics, results).filter((test) => fold === undefined || test.fold === fold),
    })),
  ];
  const rows = runs.flatMap((run) => meanByScale(run.folds).map((scale) => ({ ...scale, run: run.name })));
  rows.sort((a, b) => a.minutes - b.minutes);
  const bars = rows.map(({ minutes, accuracy, majority, run }) => ({
    label: others.size === 0 ? `${minutes} min` : `${minutes} min, ${run}`,
    share: accuracy,
    baseline: majority,
    colour: looks.get(run)?.colour ?? lookOf(0).colour,
  }));
  const title = "Accuracy by scale";
  const saveCsv = (): void =>
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(
        ["minutes", "accuracy", "majority", "run"],
        rows.map((row) => [row.minutes, row.accuracy, row.majority, row.run]),
      ),
    );
  return (
    <Figure
      title={title}
      caption="The accuracy for each time scale, in minutes; with several folds, their mean."
      hint="CrossAsset predicts twelve scales at once. The line in the bar is the share of the most frequent class at that scale."
      empty={
        bars.length === 0
          ? "No accuracy by scale: jobs with scales write it to results.json after the last fold."
          : undefined
      }
      actions={[{ label: "CSV", title: "Save these figures", run: saveCsv }]}
      controls={picker}
    >
      <ShareBars bars={bars} />
    </Figure>
  );
}

interface ConfusionProps {
  readonly detail: RunDetail;
  readonly folds: readonly FoldPredictions[];
  readonly picker: ComponentChildren;
}

function Confusion({ detail, folds, picker }: ConfusionProps) {
  const matrix = sumConfusion(folds);
  const names = classNames(matrix?.length ?? 0);
  const title = "Confusion matrix";
  const saveCsv = (): void =>
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(
        ["label", ...names],
        (matrix ?? []).map((row, label) => [names[label] ?? label, ...row]),
      ),
    );
  return (
    <Figure
      title={title}
      caption="Rows are labels, columns are predictions: the share of the row, and the count."
      hint="The diagonal has the correct predictions. A column that is dark in every row is a class that the model predicts regardless of its input."
      empty={matrix === undefined ? "No confusion matrix yet: a fold's test computes it." : undefined}
      actions={[{ label: "CSV", title: "Save the counts", run: saveCsv }]}
      controls={picker}
    >
      <div class="scroll">
        <table class="confusion">
          <thead>
            <tr>
              <th scope="col">label ↓ prediction →</th>
              {names.map((name) => (
                <th scope="col" key={name}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {(matrix ?? []).map((row, label) => {
              const rowTotal = row.reduce((sum, count) => sum + count, 0);
              return (
                <tr key={names[label]}>
                  <th scope="row">{names[label]}</th>
                  {row.map((count, predicted) => {
                    const share = rowTotal > 0 ? count / rowTotal : 0;
                    const colour = lookOf(label === predicted ? 0 : 1).colour;
                    const strength = Math.round(share * 60);
                    return (
                      <td
                        key={names[predicted]}
                        class={label === predicted ? "correct" : ""}
                        style={{ background: `color-mix(in srgb, ${colour} ${strength}%, transparent)` }}
                      >
                        {formatPercent(share)}
                        <small>{formatCount(count)}</small>
                      </td>
                    );
                  })}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Figure>
  );
}

/** CrossAsset's three classes, in this order; other classes are shown by number. */
function classNames(count: number): string[] {
  if (count === 3) return ["long", "short", "flat"];
  return Array.from({ length: count }, (_, index) => `class ${index}`);
}
