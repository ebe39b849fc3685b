! The transposition of a matrix in a window, in Fortran, by the module that the preprocessor names: got and put by
! rows, which lie scattered in Fortran, in each way of synchronising; every element is checked. usage: window N
program window_it
#ifdef USE_F08
  use mpi_f08
#elif defined(USE_MPIF_H)
  implicit none
  include 'mpif.h'
#else
  use mpi
#endif
#ifndef USE_MPIF_H
  implicit none
#endif
#ifdef USE_F08
  type(MPI_Datatype) :: row, rows
  type(MPI_Win) :: window
  type(MPI_Group) :: group
  type(MPI_Request) :: request
#else
  integer :: row, rows, window, group, request
#endif
  integer(kind=MPI_ADDRESS_KIND) :: stride, bytes, nowhere
  integer :: rank, n, wrong, all, way, error
  logical :: puts
  real, allocatable :: mine(:,:), shared(:,:)
  character(len=32) :: argument

  n = 100
  if (command_argument_count() > 0) then
     call get_command_argument(1, argument)
     read (argument, *) n
  end if
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  allocate(mine(n, n), shared(n, n))
  stride = 4
  nowhere = 0
  bytes = stride * n * n
  call MPI_Type_vector(n, 1, n, MPI_REAL, row, error)
  call MPI_Type_create_hvector(n, 1, stride, row, rows, error)
  call MPI_Type_commit(rows, error)
  call MPI_Type_free(row, error)
  call MPI_Win_create(shared, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, error)
  call MPI_Win_get_group(window, group, error)
  wrong = 0
  do way = 0, 7
     puts = mod(way, 2) == 1
     call prepare()
     select case (way / 2)
     case (0)
        call MPI_Win_fence(0, window, error)
        call move()
        call MPI_Win_fence(0, window, error)
     case (1)
        call MPI_Win_post(group, 0, window, error)
        call MPI_Win_start(group, 0, window, error)
        call move()
        call MPI_Win_complete(window, error)
        call MPI_Win_wait(window, error)
     case (2)
        call MPI_Barrier(MPI_COMM_WORLD, error)
        call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window, error)
        call move()
        call MPI_Win_unlock(1, window, error)
        call MPI_Barrier(MPI_COMM_WORLD, error)
     case default
        call MPI_Barrier(MPI_COMM_WORLD, error)
        call MPI_Win_lock_all(0, window, error)
        call request_move()
        call MPI_Win_flush_all(window, error)
        call MPI_Win_unlock_all(window, error)
        call MPI_Barrier(MPI_COMM_WORLD, error)
     end select
     if (puts .and. rank == 1) call check(shared)
     if (.not. puts .and. rank == 0) call check(mine)
  end do
  call MPI_Reduce(wrong, all, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) then
     if (all == 0) then
        print '(A)', 'right'
     else
        print '(A,1X,I0)', 'wrong', all
     end if
  end if
  call MPI_Group_free(group, error)
  call MPI_Win_free(window, error)
  call MPI_Type_free(rows, error)
  call MPI_Finalize(error)
  if (wrong /= 0) stop 1
contains
  subroutine prepare()
    integer :: i, j
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window, error)
    do j = 1, n
       do i = 1, n
          mine(i, j) = -1
          shared(i, j) = -1
          if (puts) mine(i, j) = real((j - 1) * n + i)
          if (.not. puts) shared(i, j) = real((j - 1) * n + i)
       end do
    end do
    call MPI_Win_unlock(rank, window, error)
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end subroutine prepare

  subroutine move()
    if (rank /= 0) return
    if (puts) then
       call MPI_Put(mine, n * n, MPI_REAL, 1, nowhere, 1, rows, window, error)
    else
       call MPI_Get(mine, n * n, MPI_REAL, 1, nowhere, 1, rows, window, error)
    end if
  end subroutine move

  subroutine request_move()
    if (rank /= 0) return
    if (puts) then
       call MPI_Rput(mine, n * n, MPI_REAL, 1, nowhere, 1, rows, window, request, error)
    else
       call MPI_Rget(mine, n * n, MPI_REAL, 1, nowhere, 1, rows, window, request, error)
    end if
    call MPI_Wait(request, MPI_STATUS_IGNORE, error)
  end subroutine request_move

  subroutine check(matrix)
    real, intent(in) :: matrix(:,:)
    integer :: i, j
    do j = 1, n
       do i = 1, n
          if (matrix(i, j) /= real((i - 1) * n + j)) wrong = wrong + 1
       end do
    end do
  end subroutine check
end program window_it
