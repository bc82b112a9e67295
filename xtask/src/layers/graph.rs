//! Circles in a directed graph: Tarjan's strongly connected components.

/// The components of more than one node, the largest first; nodes in ascending order.
pub fn circles(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); nodes];
    for (from, to) in edges {
        next[from].push(to);
    }
    let mut search = Tarjan { next, state: vec![None; nodes], stack: Vec::new(), count: 0, found: Vec::new() };
    for node in 0..nodes {
        if search.state[node].is_none() {
            search.visit(node);
        }
    }
    search.found.sort_by_key(|circle| (usize::MAX - circle.len(), circle[0]));
    search.found
}

#[derive(Clone, Copy)]
struct Visited {
    number: usize,
    lowest: usize,
    on_stack: bool,
}

struct Tarjan {
    next: Vec<Vec<usize>>,
    state: Vec<Option<Visited>>,
    stack: Vec<usize>,
    count: usize,
    found: Vec<Vec<usize>>,
}

impl Tarjan {
    /// Visits a node and returns the lowest number that can be reached from it. The depth is at most the number of files.
    fn visit(&mut self, node: usize) -> usize {
        let number = self.count;
        self.count += 1;
        let mut lowest = number;
        self.state[node] = Some(Visited { number, lowest, on_stack: true });
        self.stack.push(node);
        for next in self.next[node].clone() {
            match self.state[next] {
                None => lowest = lowest.min(self.visit(next)),
                Some(seen) if seen.on_stack => lowest = lowest.min(seen.number.min(seen.lowest)),
                Some(_) => {}
            }
        }
        self.state[node] = Some(Visited { number, lowest, on_stack: true });
        if lowest == number {
            self.take_component(node);
        }
        lowest
    }

    fn take_component(&mut self, node: usize) {
        let mut component = Vec::new();
        while let Some(member) = self.stack.pop() {
            if let Some(state) = &mut self.state[member] {
                state.on_stack = false;
            }
            component.push(member);
            if member == node {
                break;
            }
        }
        if component.len() > 1 {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}
