//! Published values.

/// A node of Table 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) country: &'static str,
    /// Its mean round-trip time, rounded.
    pub(super) rtt_ms: u64,
    /// Table 2: minimum, average and maximum round-trip time in s.
    pub(super) table2: [f64; 3],
    /// Table 2: number of hops ("hubs").
    pub(super) hops: u8,
    /// Table 4 for d = 2, 4, 6 s: mean delay in seconds and share accepted of iOPT, iEXP, iOFF
    /// and Classic.
    pub(super) table4: [[(f64, f64); 4]; 3],
    /// Table 5: target and actual shares of all bits of iOPT with d = 2, 4, 6 s, and of iEXP.
    pub(super) table5: [(f64, f64); 4],
    /// Table 6 for d = 2, 4, 6 s and the events e1, e2, e3: the reduced rate in b/s and its
    /// duration in s. Not published for ISI.
    pub(super) table6: Option<[[(f64, f64); 3]; 3]>,
}

pub(super) const NODES: [Node; 4] = [
    Node {
        name: "princeton.edu",
        country: "USA",
        rtt_ms: 40,
        table2: [0.039_45, 0.040_02, 0.045_24],
        hops: 17,
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
        table5: [
            (0.912, 0.913),
            (0.966, 0.966),
            (0.975, 0.98),
            (0.843, 0.843),
        ],
        table6: Some([
            [
                (512_240.0, 1.520_135),
                (491_954.0, 1.459_965),
                (496_552.0, 1.476_599),
            ],
            [
                (279_963.0, 0.851_075),
                (261_526.0, 0.792_414),
                (259_565.0, 0.788_820),
            ],
            [
                (186_117.0, 0.573_669),
                (173_629.0, 0.525_550),
                (172_046.0, 0.539_606),
            ],
        ]),
    },
    Node {
        name: "isi.edu",
        country: "USA",
        rtt_ms: 66,
        table2: [0.065_48, 0.065_72, 0.066_10],
        hops: 19,
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
        table5: [
            (0.898, 0.901),
            (0.892, 0.897),
            (0.94, 0.945),
            (0.835, 0.835),
        ],
        table6: None,
    },
    Node {
        name: "supermedia.pl",
        country: "Poland",
        rtt_ms: 148,
        table2: [0.147_05, 0.148_44, 0.157_01],
        hops: 23,
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
        table5: [(0.886, 0.886), (0.814, 0.826), (0.87, 0.88), (0.862, 0.862)],
        table6: Some([
            [
                (1_333_511.0, 14.491_48),
                (1_223_663.0, 13.297_92),
                (1_257_601.0, 13.666_91),
            ],
            [
                (665_086.0, 7.228_908),
                (584_324.0, 6.355_469),
                (602_115.0, 6.550_372),
            ],
            [
                (467_211.0, 5.085_250),
                (401_019.0, 4.368_733),
                (411_801.0, 4.480_751),
            ],
        ]),
    },
    Node {
        name: "willab.fi",
        country: "Finland",
        rtt_ms: 166,
        table2: [0.163_55, 0.166_06, 0.166_47],
        hops: 24,
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
        table5: [(0.929, 0.929), (0.789, 0.791), (0.867, 0.874), (0.86, 0.86)],
        table6: Some([
            [
                (1_443_311.0, 15.685_62),
                (1_292_875.0, 14.048_08),
                (1_309_004.0, 14.226_61),
            ],
            [
                (602_184.0, 6.551_785),
                (564_819.0, 6.145_352),
                (604_674.0, 6.579_283),
            ],
            [
                (486_808.0, 5.301_540),
                (419_186.0, 4.557_723),
                (307_244.0, 3.343_913),
            ],
        ]),
    },
];

/// Column of a mode in Table 4, which has one column for all iOPT laws.
pub(super) fn column(mode: usize) -> usize {
    mode.saturating_sub(2)
}
