//! Agreement of all ranks on one error: the one that a reader of the whole file would report.

use crate::comm::{Communicator, gather};
use crate::{Error, Result};
use std::path::PathBuf;

/// Ends a step in which each rank reads its part of a file. If it failed on some rank, every rank gets the
/// same error, with the text of the whole-file reader: that of the first value that is not finite, or else of
/// the lowest rank, whose part of the file comes first. Collective.
///
/// # Errors
/// The common error; [`Error::Rank`] for an error that only one rank can see, such as a file that it cannot
/// open.
pub(super) fn same<T>(comm: &dyn Communicator, mine: Result<T>) -> Result<T> {
    if comm.size() == 1 {
        return mine;
    }
    let message = mine.as_ref().err().map(PackedError::of);
    let told = gather(comm, &message.map(|l| l.encode()).unwrap_or_default())?;
    let failed = told.iter().enumerate().filter_map(|(q, bytes)| Some((q, PackedError::decode(bytes)?)));
    match failed.min_by_key(|(q, message)| (message.place, *q)) {
        None => mine,
        Some((rank, message)) => match mine {
            Err(own) if message.kind == Kind::Other => Err(own),
            _ => Err(message.into_error(rank)),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Parse,
    Format,
    Invalid,
    NotFinite,
    Other,
}

/// An error as a message.
struct PackedError {
    kind: Kind,
    /// Line, or row and column.
    place: [u64; 2],
    value: f64,
    exit_code: u8,
    /// The file, or the array that holds the value.
    subject: String,
    message: String,
}

impl PackedError {
    fn of(error: &Error) -> Self {
        let packed = |kind, place, value, subject: String, message: String| Self {
            kind,
            place,
            value,
            exit_code: error.exit_code(),
            subject,
            message,
        };
        match error {
            Error::Parse { path, line, message } => {
                packed(Kind::Parse, [*line as u64, 0], 0.0, path.display().to_string(), message.clone())
            }
            Error::Format { path, message } => {
                packed(Kind::Format, [0; 2], 0.0, path.display().to_string(), message.clone())
            }
            Error::Invalid(message) => packed(Kind::Invalid, [0; 2], 0.0, String::new(), message.clone()),
            Error::NotFinite { what, row, column, value } => {
                packed(Kind::NotFinite, [*row as u64, *column as u64], *value, what.clone(), String::new())
            }
            other => packed(Kind::Other, [0; 2], 0.0, String::new(), other.to_string()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.kind as u8, self.exit_code];
        out.extend(self.place.iter().flat_map(|n| n.to_le_bytes()));
        out.extend(self.value.to_le_bytes());
        out.extend((self.subject.len() as u64).to_le_bytes());
        out.extend(self.subject.as_bytes());
        out.extend(self.message.as_bytes());
        out
    }

    /// `None` for the empty message of a rank without an error.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, text) = bytes.split_at_checked(34)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[2 + 8 * at + i]));
        let kinds = [Kind::Parse, Kind::Format, Kind::Invalid, Kind::NotFinite, Kind::Other];
        let (subject, message) = text.split_at_checked(word(3) as usize)?;
        Some(Self {
            kind: *kinds.get(head[0] as usize)?,
            exit_code: head[1],
            place: [word(0), word(1)],
            value: f64::from_bits(word(2)),
            subject: String::from_utf8_lossy(subject).into_owned(),
            message: String::from_utf8_lossy(message).into_owned(),
        })
    }

    fn into_error(self, rank: usize) -> Error {
        let PackedError { kind, place: [row, column], value, exit_code, subject, message } = self;
        match kind {
            Kind::Parse => Error::parse(PathBuf::from(subject), row as usize, message),
            Kind::Format => Error::format(PathBuf::from(subject), message),
            Kind::Invalid => Error::invalid(message),
            Kind::NotFinite => {
                Error::NotFinite { what: subject, row: row as usize, column: column as usize, value }
            }
            Kind::Other => Error::Rank { rank, message, exit_code, memory: false },
        }
    }
}
