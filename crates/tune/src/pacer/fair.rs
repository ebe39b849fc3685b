//! Max-min fairness: nobody gets more than it asks for, and what that leaves goes to the others in equal parts.

/// Divides `total` by these demands, any of which may be infinite. What nobody asks for is given to all in proportion to what
/// they have: a limit that is not needed only keeps somebody from sending more.
pub fn divide(total: f64, demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|left, right| demands[*left].total_cmp(&demands[*right]));
    let (mut shares, mut left) = (vec![0.0; demands.len()], total.max(0.0));
    for (done, index) in order.iter().enumerate() {
        let equal = left / (demands.len() - done) as f64;
        shares[*index] = demands[*index].min(equal).max(0.0);
        left -= shares[*index];
    }
    let given = total.max(0.0) - left;
    if left > 0.0 && given > 0.0 {
        shares.iter_mut().for_each(|share| *share *= total / given);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_little_gets_it_and_the_others_share_equally() {
        let all = f64::INFINITY;
        assert_eq!(divide(12.0, &[all, 2.0, all]), [5.0, 2.0, 5.0]);
        assert_eq!(divide(12.0, &[all, all, all]), [4.0; 3]);
        assert_eq!(divide(12.0, &[1.0, 2.0, 3.0]), [2.0, 4.0, 6.0]);
        assert_eq!(divide(12.0, &[0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(divide(13.0, &[5.0, 4.5, 1.0, 100.0]), [4.0, 4.0, 1.0, 4.0]);
        assert!(divide(12.0, &[]).is_empty());
        assert_eq!(divide(0.0, &[all, 1.0]), [0.0, 0.0]);
    }
}
