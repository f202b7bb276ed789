use super::*;

fn panel(chart: &mut Chart) -> Panel {
    let vertical = Vertical {
        from: 0.0,
        to: 100.0,
        unit: 1.0,
        name: "ms",
        ticks: 2,
    };
    chart.panel(None, 100.0, &vertical)
}

#[test]
fn values_beyond_the_panel_are_marked() {
    let mut chart = Chart::new("c", Form::Wide, (0.0, 60.0), &[]);
    let panel = panel(&mut chart);
    let inside = [(1.0, 99.0), (2.0, 100.0)];
    let peaks = [(10.0, 50.0), (20.0, 300.0), (20.2, 900.0), (40.0, 120.0)];
    let lines = [("f0", &inside[..]), ("f1", &peaks[..])];
    chart.beyond(&panel, lines, |ms| format!("{ms:.0} ms"));
    let (svg, height) = chart.finish();
    let drawn = svg.into_element(height, "", "");
    assert_eq!(drawn.matches("f1 solid").count(), 2, "{drawn}");
    assert!(!drawn.contains("f0 solid"));
    assert!(drawn.contains("900 ms") && drawn.contains("120 ms"));
    assert!(
        !drawn.contains("300 ms"),
        "it shares the mark of the higher one"
    );
}

#[test]
fn values_of_marks_side_by_side_do_not_cover_each_other() {
    let mut chart = Chart::new("c", Form::Wide, (0.0, 60.0), &[]);
    let panel = panel(&mut chart);
    let peaks: Vec<(f64, f64)> = (0..60).map(|at| (f64::from(at), 200.0)).collect();
    chart.beyond(&panel, [("f0", &peaks[..])], |ms| format!("{ms:.0} ms"));
    let (svg, height) = chart.finish();
    let drawn = svg.into_element(height, "", "");
    assert_eq!(drawn.matches("200 ms").count(), 1, "{drawn}");
    assert!(drawn.matches("f0 solid").count() > 20);
}
