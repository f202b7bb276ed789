//! Pictures of a run folder: what was on the screen at the [moments](super::Moment) of a run.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// A picture of a flow in its run folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredPicture {
    /// Frame that was due for display.
    pub frame: u64,
    /// Content.
    pub kind: PictureKind,
    /// A JPEG file.
    pub jpeg: Vec<u8>,
}

/// Content of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PictureKind {
    /// The original of the frame.
    Camera,
    /// The picture on display when the frame was due.
    Shown,
}

impl StoredPicture {
    /// Path below the folder of the flow.
    pub fn path(&self) -> String {
        let kind = match self.kind {
            PictureKind::Camera => CAMERA,
            PictureKind::Shown => SHOWN,
        };
        format!("{PICTURES}/{}{kind}", self.frame)
    }
}

/// Writes the pictures of a flow to its folder.
pub(super) fn write(flow: &Path, pictures: &[StoredPicture]) -> io::Result<()> {
    if pictures.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(flow.join(PICTURES))?;
    let mut all = pictures.iter();
    all.try_for_each(|picture| fs::write(flow.join(picture.path()), &picture.jpeg))
}

/// Pictures of a flow, in order of frames. Other files are ignored, and so are pictures beyond the
/// limits of number and size.
pub(super) fn read(flow: &Path) -> Vec<StoredPicture> {
    let mut pictures = named(flow);
    pictures.sort_unstable();
    pictures.truncate(MAX);
    pictures.retain_mut(|picture| {
        let load = || -> io::Result<Vec<u8>> {
            let mut jpeg = Vec::new();
            let file = fs::File::open(flow.join(picture.path()))?;
            file.take(LARGEST + 1).read_to_end(&mut jpeg)?;
            Ok(jpeg)
        };
        picture.jpeg = load().unwrap_or_default();
        !picture.jpeg.is_empty() && picture.jpeg.len() as u64 <= LARGEST
    });
    pictures
}

/// Removes the pictures of a flow, and their folder if it has nothing else.
pub(super) fn remove(flow: &Path) -> io::Result<()> {
    let mut pictures = named(flow).into_iter();
    pictures.try_for_each(|picture| fs::remove_file(flow.join(picture.path())))?;
    // It may have other files, or not exist.
    let _ = fs::remove_dir(flow.join(PICTURES));
    Ok(())
}

/// Pictures by the names of the files, without content.
fn named(flow: &Path) -> Vec<StoredPicture> {
    let entries = fs::read_dir(flow.join(PICTURES)).into_iter().flatten();
    let pictures = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kinds = [(CAMERA, PictureKind::Camera), (SHOWN, PictureKind::Shown)];
        let mut kinds = kinds.into_iter();
        let (frame, kind) =
            kinds.find_map(|(end, kind)| Some((name.strip_suffix(end)?.parse().ok()?, kind)))?;
        let jpeg = Vec::new();
        let picture = StoredPicture { frame, kind, jpeg };
        // `007` and `+7` are numbers, but not names that a run writes.
        (picture.path() == format!("{PICTURES}/{name}")).then_some(picture)
    });
    pictures.collect()
}

const PICTURES: &str = "pictures";
const CAMERA: &str = "-camera.jpg";
const SHOWN: &str = "-shown.jpg";

/// Maximum number of pictures of a flow: two at each of three moments, and some.
const MAX: usize = 16;

/// Maximum size of a picture in bytes.
const LARGEST: u64 = 4 << 20;
