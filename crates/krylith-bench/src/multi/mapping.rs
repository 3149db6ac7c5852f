//! Parallel buffering and pre-mapping as published in the OKP paper (Alg. 5 and 6), on the host: the maps
//! that the GPU's kernels read, and the results of those kernels.
//!
//! A vector is stored stage by stage (s segments of q numbers, b per node), so the data for one neighbour are
//! scattered over s places. Buffering gathers all segments into one buffer, segment by segment. The send map
//! reorders it by neighbour, so that each gets one message. The receive map reorders received data into
//! segments.

use krylith_core::partition::Halo;

/// Returns the index array c of Alg. 5: the offset of each sent node in a segment.
pub(crate) fn index_array(halo: &Halo, b: usize) -> Vec<i32> {
    halo.send.iter().map(|&node| (node as usize * b) as i32).collect()
}

/// Returns the send map of Alg. 6: entry γ is the index in Alg. 5's buffer of number γ of the reordered send
/// buffer.
///
/// `starts` (a_s) holds the start of each neighbour's nodes, and the end of the last; `segments` is s.
pub(crate) fn send_map(starts: &[usize], b: usize, segments: usize) -> Vec<i32> {
    let l = b * segments * starts.last().copied().unwrap_or(0);
    let (mut map, mut before) = (Vec::with_capacity(l), 0);
    for i in 0..starts.len().saturating_sub(1) {
        let d = b * (starts[i + 1] - starts[i]);
        for j in 0..segments {
            map.extend((0..d).map(|k| (k + j * (l / segments) + before) as i32));
        }
        before += d;
    }
    map
}

/// Returns the receive map of Alg. 6: entry γ is the index in the received data of number γ of the segments
/// in sequence.
pub(crate) fn receive_map(starts: &[usize], b: usize, segments: usize) -> Vec<i32> {
    let l = b * segments * starts.last().copied().unwrap_or(0);
    let mut map = Vec::with_capacity(l);
    for i in 0..segments {
        let mut before = 0;
        for j in 0..starts.len().saturating_sub(1) {
            let d = b * (starts[j + 1] - starts[j]);
            map.extend((0..d).map(|k| (k + before + i * d) as i32));
            before += segments * d;
        }
    }
    map
}

/// Returns the start of each neighbour's nodes: a_s for sent data, a_r for received data.
pub(crate) fn starts(halo: &Halo) -> (Vec<usize>, Vec<usize>) {
    let (mut send, mut receive) = (vec![0], vec![0]);
    for n in &halo.neighbours {
        send.push(n.send.end);
        receive.push(n.receive.end);
    }
    (send, receive)
}

/// Returns buffering and send map in one: the index in the vector, of segments of `p` numbers, of each number
/// of the reordered send buffer.
///
/// The published solver runs two kernels for it; the plain NCCL baseline uses this.
pub(crate) fn send_gather(c: &[i32], starts: &[usize], b: usize, segments: usize, p: usize) -> Vec<i32> {
    let length = c.len() * b;
    let place = |t: usize| {
        let (w, rest) = (t / length, t % length);
        c[rest / b] + (rest % b + w * p) as i32
    };
    send_map(starts, b, segments).iter().map(|&t| place(t as usize)).collect()
}

/// Returns the index of each received number in segments of `p` numbers whose ghosts begin at `q`.
///
/// The published solver reorders into a vector of ghosts ([`receive_map`]); the plain NCCL baseline scatters
/// with this.
pub(crate) fn receive_scatter(
    starts: &[usize],
    b: usize,
    segments: usize,
    (p, q): (usize, usize),
) -> Vec<i32> {
    let map = receive_map(starts, b, segments);
    let each = map.len() / segments;
    let mut places = vec![0; map.len()];
    for (i, &arrived) in map.iter().enumerate() {
        places[arrived as usize] = (i / each * p + q + i % each) as i32;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith_core::partition::Neighbour;

    /// Runs Alg. 5, thread by thread.
    fn parallel_buffering(x: &[f64], q: usize, c: &[i32], l: usize, b: usize, s: usize) -> Vec<f64> {
        let mut buffer = vec![f64::NAN; l];
        for (t, to) in buffer.iter_mut().enumerate() {
            let length = l / s;
            let w = t / length;
            let (node, o) = (t % length / b, t % length % b);
            *to = x[c[node] as usize + o + w * q];
        }
        buffer
    }

    fn gather(map: &[i32], from: &[f64]) -> Vec<f64> {
        map.iter().map(|&i| from[i as usize]).collect()
    }

    /// The halo of rank 0 of three, with uneven messages and one neighbour that gets nothing.
    fn halo() -> Halo {
        let neighbour = |rank, send, receive| Neighbour { rank, send, receive };
        Halo {
            own: 6,
            ghosts: 4,
            neighbours: vec![neighbour(1, 0..2, 0..1), neighbour(2, 2..2, 1..3), neighbour(5, 2..5, 3..4)],
            send: vec![4, 5, 0, 3, 4],
        }
    }

    #[test]
    fn both_maps_equal_a_direct_gather() {
        let halo = halo();
        for (b, s) in [(1, 1), (1, 3), (4, 2), (3, 4)] {
            let q = halo.own * b;
            let x: Vec<f64> = (0..q * s).map(|i| i as f64).collect();
            let c = index_array(&halo, b);
            let (send, receive) = starts(&halo);
            let buffer = parallel_buffering(&x, q, &c, halo.send.len() * b * s, b, s);
            let sent = gather(&send_map(&send, b, s), &buffer);
            let mut wanted = Vec::new();
            for n in &halo.neighbours {
                for stage in 0..s {
                    for &node in &halo.send[n.send.clone()] {
                        wanted.extend((0..b).map(|r| x[stage * q + node as usize * b + r]));
                    }
                }
            }
            assert_eq!(sent, wanted, "b={b} s={s}");
            assert_eq!(gather(&send_gather(&c, &send, b, s, q), &x), wanted, "b={b} s={s}");

            // Each neighbour's message holds its ghosts, stage by stage.
            let ghost = |stage: usize, g: usize, r: usize| (stage * 1000 + g * 10 + r) as f64;
            let mut raw = Vec::new();
            for n in &halo.neighbours {
                for stage in 0..s {
                    raw.extend(n.receive.clone().flat_map(|g| (0..b).map(move |r| ghost(stage, g, r))));
                }
            }
            let segments = gather(&receive_map(&receive, b, s), &raw);
            let wanted: Vec<f64> = (0..s)
                .flat_map(|t| (0..halo.ghosts).flat_map(move |g| (0..b).map(move |r| ghost(t, g, r))))
                .collect();
            assert_eq!(segments, wanted, "b={b} s={s}");

            let p = q + halo.ghosts * b + 3;
            let mut whole = vec![-1.0; p * s];
            for (&to, &from) in receive_scatter(&receive, b, s, (p, q)).iter().zip(&raw) {
                whole[to as usize] = from;
            }
            for (stage, segment) in whole.chunks(p).enumerate() {
                let ghosts = halo.ghosts * b;
                assert_eq!(segment[q..q + ghosts], wanted[stage * ghosts..][..ghosts], "b={b} s={s}");
                assert!(segment[..q].iter().chain(&segment[q + ghosts..]).all(|&v| v == -1.0));
            }
        }
    }

    #[test]
    fn a_rank_without_neighbours_has_empty_maps() {
        let halo = Halo { own: 3, ..Halo::default() };
        let (send, receive) = starts(&halo);
        assert!(send_map(&send, 4, 2).is_empty() && receive_map(&receive, 4, 2).is_empty());
        assert!(send_gather(&[], &send, 4, 2, 12).is_empty());
        assert!(receive_scatter(&receive, 4, 2, (12, 12)).is_empty());
    }
}
