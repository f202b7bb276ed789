//! What the paper prints.

/// A player of Table 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: &'static str,
    /// Its mean round trip, rounded.
    pub(super) rtt_ms: u64,
    /// Table 4 for d = 2, 4, 6 s: mean delay in seconds and share accepted of iOPT, iEXP, iOFF
    /// and Classic.
    pub(super) table4: [[(f64, f64); 4]; 3],
    /// Table 5: share of the bits that iOPT made with d = 2, 4, 6 s, and iEXP's.
    pub(super) table5: [f64; 4],
    /// Table 6 for d = 2, 4, 6 s: the reduced rate in b/s and its duration in s, mean over the
    /// three events; none printed for ISI.
    pub(super) table6: Option<[(f64, f64); 3]>,
}

pub(super) const NODES: [Node; 4] = [
    Node {
        name: "princeton.edu",
        rtt_ms: 40,
        table4: [
            [
                (0.518, 0.797),
                (2.613, 0.529),
                (6.279, 0.455),
                (3.047, 0.461),
            ],
            [
                (0.897, 0.976),
                (2.613, 0.529),
                (6.279, 0.455),
                (3.047, 0.805),
            ],
            [(0.883, 1.0), (2.613, 0.997), (6.279, 0.455), (3.047, 0.805)],
        ],
        table5: [0.913, 0.966, 0.98, 0.843],
        table6: Some([(500_249.0, 1.486), (267_016.0, 0.811), (177_264.0, 0.546)]),
    },
    Node {
        name: "isi.edu",
        rtt_ms: 66,
        table4: [
            [
                (2.018, 0.415),
                (-0.015, 1.0),
                (10.82, 0.197),
                (10.957, 0.217),
            ],
            [
                (2.029, 0.737),
                (-0.015, 1.0),
                (10.82, 0.197),
                (10.957, 0.395),
            ],
            [
                (3.974, 0.679),
                (-0.015, 1.0),
                (10.82, 0.329),
                (10.957, 0.395),
            ],
        ],
        table5: [0.901, 0.897, 0.945, 0.835],
        table6: None,
    },
    Node {
        name: "supermedia.pl",
        rtt_ms: 148,
        table4: [
            [
                (1.38, 0.692),
                (2.411, 0.284),
                (8.485, 0.133),
                (8.485, 0.147),
            ],
            [(0.727, 1.0), (2.411, 0.777), (8.485, 0.277), (8.485, 0.291)],
            [(1.387, 1.0), (2.411, 1.0), (8.485, 0.277), (8.485, 0.52)],
        ],
        table5: [0.886, 0.826, 0.88, 0.862],
        table6: Some([
            (1_271_590.0, 13.819),
            (617_174.0, 6.718),
            (426_677.0, 4.645),
        ]),
    },
    Node {
        name: "willab.fi",
        rtt_ms: 166,
        table4: [
            [
                (2.504, 0.319),
                (-1.239, 1.0),
                (8.752, 0.155),
                (6.615, 0.273),
            ],
            [(-0.641, 1.0), (-1.239, 1.0), (8.752, 0.293), (6.615, 0.299)],
            [(1.623, 1.0), (-1.239, 1.0), (8.752, 0.295), (6.615, 0.535)],
        ],
        table5: [0.929, 0.791, 0.874, 0.86],
        table6: Some([
            (1_348_399.0, 14.653),
            (590_565.0, 6.425),
            (404_413.0, 4.401),
        ]),
    },
];

/// The place of a mode in Table 4; those of iOPT are all printed as one.
pub(super) fn column(mode: usize) -> usize {
    mode.saturating_sub(2)
}
